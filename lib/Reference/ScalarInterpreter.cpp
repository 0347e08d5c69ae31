// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Running scalar programs. See ScalarProgram.h.

#include "ScalarOpcodes.h"
#include "attn/Reference/RandomBits.h"
#include "attn/Runtime/FloatConvert.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/Support/raw_ostream.h"
#include <cmath>

using namespace attn;

double attn::roundTo(ElementKind kind, double value) {
  switch (kind) {
  case ElementKind::F32:
    return float(value);
  case ElementKind::F16:
    return halfToFloat(floatToHalf(float(value)));
  case ElementKind::BF16:
    return bfloatToFloat(floatToBfloat(float(value)));
  default:
    return value;
  }
}

/// The low `width` bits of `value`, sign-extended, or as they are.
static int64_t signExtend(uint64_t value, unsigned width) {
  return int64_t(value << (64 - width)) >> (64 - width);
}
static uint64_t zeroExtend(int64_t value, unsigned width) {
  return width == 64 ? uint64_t(value) : uint64_t(value) & ((uint64_t(1) << width) - 1);
}

bool ScalarProgram::run(const std::vector<Instruction> &code, Slot *slots, Fault &fault) {
  for (const Instruction &instruction : code)
    if (!step(instruction, slots, fault))
      return false;
  return true;
}

bool ScalarProgram::locate(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<unsigned> indices,
                           const Slot *slots, mlir::Operation *op, llvm::StringRef verb,
                           int64_t &position, Fault &fault) {
  position = 0;
  for (auto [dim, slot] : llvm::enumerate(indices)) {
    int64_t index = slots[slot].i, size = shape[dim];
    if (uint64_t(index) >= uint64_t(size)) {
      fault.op = op;
      fault.message = (verb + " outside of a tensor of " + formatShape(shape) + ": index " +
                       llvm::Twine(index) + " in dimension " + llvm::Twine(dim))
                          .str();
      return false;
    }
    position = position * size + index;
  }
  return true;
}

bool ScalarProgram::extract(const Instruction &instruction, Slot *slots, Fault &fault) {
  const RefTensor &tensor = *instruction.tensor;
  int64_t position;
  if (!locate(tensor.shape, instruction.indices, slots, instruction.op, "reads", position, fault))
    return false;
  if (isFloat(tensor.kind))
    slots[instruction.target].f = tensor.floats[position];
  else
    slots[instruction.target].i = tensor.integers[position];
  return true;
}

int64_t ScalarProgram::divide(const Instruction &instruction, const Slot *slots) {
  int64_t a = slots[instruction.operands[0]].i, b = slots[instruction.operands[1]].i;
  unsigned width = instruction.width;
  uint64_t ua = zeroExtend(a, width), ub = zeroExtend(b, width);
  bool isRemainder = instruction.code == Opcode::RemSI || instruction.code == Opcode::RemUI ||
                     instruction.code == Opcode::FloorMod;
  if (b == 0) // so that a = q b + r
    return isRemainder ? a : 0;
  // The one quotient that does not fit: wrap, as the hardware would not.
  bool wraps = b == -1;
  int64_t quotient = wraps ? int64_t(0 - uint64_t(a)) : a / b;
  int64_t remainder = wraps ? 0 : a % b;
  bool adjust = remainder != 0;
  switch (instruction.code) {
  case Opcode::DivSI:
    return quotient;
  case Opcode::DivUI:
    return int64_t(ua / ub);
  case Opcode::CeilDivUI:
    return int64_t(ua / ub + (ua % ub != 0));
  case Opcode::CeilDivSI:
    return quotient + (adjust && (remainder < 0) == (b < 0));
  case Opcode::FloorDivSI:
    return quotient - (adjust && (remainder < 0) != (b < 0));
  case Opcode::RemUI:
    return int64_t(ua % ub);
  case Opcode::FloorMod:
    return adjust && (remainder < 0) != (b < 0) ? remainder + b : remainder;
  default:
    return remainder;
  }
}

/// A float as the nearest integer of `width` bits towards zero; NaN is 0.
static int64_t toInteger(double value, unsigned width, bool isSigned) {
  double end = std::ldexp(1.0, int(width) - isSigned);
  if (std::isnan(value))
    return 0;
  if (value >= end)
    return isSigned ? int64_t((uint64_t(1) << (width - 1)) - 1) : -1;
  if (value < (isSigned ? -end : 0.0))
    return isSigned ? int64_t(~uint64_t(0) << (width - 1)) : 0;
  return isSigned ? int64_t(value) : int64_t(uint64_t(value));
}

static bool compareIntegers(uint8_t predicate, int64_t a, int64_t b, unsigned width) {
  uint64_t ua = zeroExtend(a, width), ub = zeroExtend(b, width);
  switch (mlir::arith::CmpIPredicate(predicate)) {
  case mlir::arith::CmpIPredicate::eq:
    return a == b;
  case mlir::arith::CmpIPredicate::ne:
    return a != b;
  case mlir::arith::CmpIPredicate::slt:
    return a < b;
  case mlir::arith::CmpIPredicate::sle:
    return a <= b;
  case mlir::arith::CmpIPredicate::sgt:
    return a > b;
  case mlir::arith::CmpIPredicate::sge:
    return a >= b;
  case mlir::arith::CmpIPredicate::ult:
    return ua < ub;
  case mlir::arith::CmpIPredicate::ule:
    return ua <= ub;
  case mlir::arith::CmpIPredicate::ugt:
    return ua > ub;
  case mlir::arith::CmpIPredicate::uge:
    return ua >= ub;
  }
  return false;
}

static bool compareFloats(uint8_t predicate, double a, double b) {
  using Predicate = mlir::arith::CmpFPredicate;
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (Predicate(predicate)) {
  case Predicate::AlwaysFalse:
    return false;
  case Predicate::AlwaysTrue:
    return true;
  case Predicate::ORD:
    return !unordered;
  case Predicate::UNO:
    return unordered;
  case Predicate::OEQ:
    return a == b;
  case Predicate::UEQ:
    return unordered || a == b;
  case Predicate::ONE:
    return !unordered && a != b;
  case Predicate::UNE:
    return unordered || a != b;
  case Predicate::OLT:
    return a < b;
  case Predicate::ULT:
    return unordered || a < b;
  case Predicate::OLE:
    return a <= b;
  case Predicate::ULE:
    return unordered || a <= b;
  case Predicate::OGT:
    return a > b;
  case Predicate::UGT:
    return unordered || a > b;
  case Predicate::OGE:
    return a >= b;
  case Predicate::UGE:
    return unordered || a >= b;
  }
  return false;
}

int64_t ScalarProgram::integerOp(const Instruction &instruction, const Slot *slots) {
  unsigned width = instruction.width;
  int64_t a = slots[instruction.operands[0]].i, b = slots[instruction.operands[1]].i;
  uint64_t ua = uint64_t(a), ub = uint64_t(b);
  bool inRange = zeroExtend(b, width) < width;
  switch (instruction.code) {
  case Opcode::AddI:
    return int64_t(ua + ub);
  case Opcode::SubI:
    return int64_t(ua - ub);
  case Opcode::MulI:
    return int64_t(ua * ub);
  case Opcode::AndI:
    return a & b;
  case Opcode::OrI:
    return a | b;
  case Opcode::XOrI:
    return a ^ b;
  case Opcode::ShLI:
    return inRange ? int64_t(ua << b) : 0;
  case Opcode::ShRSI:
    return a >> (inRange ? b : int64_t(width) - 1);
  case Opcode::ShRUI:
    return inRange ? int64_t(zeroExtend(a, width) >> b) : 0;
  case Opcode::MinSI:
    return std::min(a, b);
  case Opcode::MaxSI:
    return std::max(a, b);
  case Opcode::MinUI:
    return zeroExtend(a, width) < zeroExtend(b, width) ? a : b;
  case Opcode::MaxUI:
    return zeroExtend(a, width) > zeroExtend(b, width) ? a : b;
  case Opcode::AbsI:
    return a < 0 ? int64_t(0 - ua) : a;
  default: // the sign extensions and truncation: signExtend does the work
    return a;
  }
}

/// NaN if either is; of two zeros the one with the sign asked for.
static double minimum(double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return std::nan("");
  if (a == b)
    return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

double ScalarProgram::floatOp(const Instruction &instruction, const Slot *slots) {
  double a = slots[instruction.operands[0]].f, b = slots[instruction.operands[1]].f;
  switch (instruction.code) {
#define CASE(CODE, VALUE)                                                                          \
  case Opcode::CODE:                                                                               \
    return VALUE;
    CASE(AddF, a + b)
    CASE(SubF, a - b)
    CASE(MulF, a * b)
    CASE(DivF, a / b)
    CASE(RemF, std::fmod(a, b))
    CASE(NegF, -a)
    CASE(MinimumF, minimum(a, b))
    CASE(MaximumF, -minimum(-a, -b))
    CASE(MinNumF, std::fmin(a, b))
    CASE(MaxNumF, std::fmax(a, b))
    CASE(ExtF, a)
    CASE(TruncF, a)
    CASE(AbsF, std::fabs(a))
    CASE(Acos, std::acos(a))
    CASE(Asin, std::asin(a))
    CASE(Atan, std::atan(a))
    CASE(Atan2, std::atan2(a, b))
    CASE(Cbrt, std::cbrt(a))
    CASE(Ceil, std::ceil(a))
    CASE(CopySign, std::copysign(a, b))
    CASE(Cos, std::cos(a))
    CASE(Cosh, std::cosh(a))
    CASE(Erf, std::erf(a))
    CASE(Exp, std::exp(a))
    CASE(Exp2, std::exp2(a))
    CASE(ExpM1, std::expm1(a))
    CASE(Floor, std::floor(a))
    CASE(Fma, std::fma(a, b, slots[instruction.operands[2]].f))
    CASE(Log, std::log(a))
    CASE(Log10, std::log10(a))
    CASE(Log1p, std::log1p(a))
    CASE(Log2, std::log2(a))
    CASE(PowF, std::pow(a, b))
    CASE(Round, std::round(a))
    CASE(RoundEven, std::nearbyint(a))
    CASE(Rsqrt, 1.0 / std::sqrt(a))
    CASE(Sin, std::sin(a))
    CASE(Sinh, std::sinh(a))
    CASE(Sqrt, std::sqrt(a))
    CASE(Tan, std::tan(a))
    CASE(Tanh, std::tanh(a))
    CASE(Trunc, std::trunc(a))
#undef CASE
  default:
    return std::nan("");
  }
}

bool ScalarProgram::step(const Instruction &instruction, Slot *slots, Fault &fault) {
  Slot &target = slots[instruction.target];
  const Slot &a = slots[instruction.operands[0]], &b = slots[instruction.operands[1]];
  unsigned width = instruction.width;
  switch (instruction.code) {
  case Opcode::Extract:
    return extract(instruction, slots, fault);
  case Opcode::Select:
  case Opcode::SelectF:
    target = a.i ? b : slots[instruction.operands[2]];
    return true;
  case Opcode::CmpI:
    target.i = -int64_t(compareIntegers(instruction.predicate, a.i, b.i, width));
    return true;
  case Opcode::CmpF:
    target.i = -int64_t(compareFloats(instruction.predicate, a.f, b.f));
    return true;
  case Opcode::RandomBits: {
    auto at = [&](unsigned operand) { return slots[instruction.indices[operand]].i; };
    target.i = signExtend(randomBits(at(0), at(1), at(2), at(3), at(4), at(5)), width);
    return true;
  }
  case Opcode::ExtUI:
  case Opcode::IndexCastUI:
    target.i = int64_t(zeroExtend(a.i, width));
    return true;
  case Opcode::SIToFP:
    target.f = roundTo(instruction.rounding, double(a.i));
    return true;
  case Opcode::UIToFP:
    target.f = roundTo(instruction.rounding, double(zeroExtend(a.i, width)));
    return true;
  case Opcode::FPToSI:
  case Opcode::FPToUI: {
    bool isSigned = instruction.code == Opcode::FPToSI;
    target.i = signExtend(uint64_t(toInteger(a.f, width, isSigned)), width);
    return true;
  }
  default:
    break;
  }
  if (instruction.code < Opcode::DivSI)
    target.i = signExtend(uint64_t(integerOp(instruction, slots)), width);
  else if (instruction.code <= Opcode::FloorMod)
    target.i = signExtend(uint64_t(divide(instruction, slots)), width);
  else
    target.f = roundTo(instruction.rounding, floatOp(instruction, slots));
  return true;
}
