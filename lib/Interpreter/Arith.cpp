// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// arith: integers exactly in their width, floats rounded to their type. And attn.random_bits.

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "Elementwise.h"
#include "attn/Reference/RandomBits.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>
#include <cstring>

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

static double toFloat(const APFloat &value) {
  bool loses;
  APFloat number = value;
  number.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &loses);
  return number.convertToDouble();
}

static int64_t toInt(const APInt &value) {
  return value.getBitWidth() == 1 ? int64_t(value.getZExtValue()) : value.getSExtValue();
}

/// A constant is in the frame from the start.
static LogicalResult translateConstant(Translator &translator, Operation *op) {
  auto constant = cast<arith::ConstantOp>(op);
  Instruction shape;
  shape.op = op;
  if (failed(setShape(shape, constant.getType())))
    return failure();
  interpreter::Value &value = translator.constant(constant.getResult());
  if (auto number = dyn_cast<FloatAttr>(constant.getValue())) {
    value.number = toFloat(number.getValue());
  } else if (auto number = dyn_cast<IntegerAttr>(constant.getValue())) {
    value.integer = toInt(number.getValue());
  } else if (auto dense = dyn_cast<DenseElementsAttr>(constant.getValue())) {
    if (isFloat(shape.kind)) {
      auto elements = std::make_shared<Floats>(shape.count);
      for (auto [k, element] : llvm::enumerate(dense.getValues<APFloat>()))
        elements->data[k] = toFloat(element);
      value.object = elements;
    } else {
      auto elements = std::make_shared<Ints>(shape.count);
      for (auto [k, element] : llvm::enumerate(dense.getValues<APInt>()))
        elements->data[k] = toInt(element);
      value.object = elements;
    }
  } else {
    return op->emitError("the interpreter does not execute this constant");
  }
  return success();
}

//===----------------------------------------------------------------------===//
// Floats
//===----------------------------------------------------------------------===//

static double addFloats(double a, double b) { return a + b; }
static double subFloats(double a, double b) { return a - b; }
static double mulFloats(double a, double b) { return a * b; }
static double divFloats(double a, double b) { return a / b; }
static double remFloats(double a, double b) { return std::fmod(a, b); }
static double negFloat(double a) { return -a; }
static double sameFloat(double a) { return a; }
static double maxNumber(double a, double b) { return a != a ? b : b != b ? a : a > b ? a : b; }
static double minNumber(double a, double b) { return a != a ? b : b != b ? a : a < b ? a : b; }
static double maximum(double a, double b) { return a != a ? a : b != b ? b : a > b ? a : b; }
static double minimum(double a, double b) { return a != a ? a : b != b ? b : a < b ? a : b; }

//===----------------------------------------------------------------------===//
// Integers
//===----------------------------------------------------------------------===//

static int64_t addInts(int64_t a, int64_t b) { return int64_t(uint64_t(a) + uint64_t(b)); }
static int64_t subInts(int64_t a, int64_t b) { return int64_t(uint64_t(a) - uint64_t(b)); }
static int64_t mulInts(int64_t a, int64_t b) { return int64_t(uint64_t(a) * uint64_t(b)); }
static int64_t andInts(int64_t a, int64_t b) { return a & b; }
static int64_t orInts(int64_t a, int64_t b) { return a | b; }
static int64_t xorInts(int64_t a, int64_t b) { return a ^ b; }
static int64_t maxSigned(int64_t a, int64_t b) { return std::max(a, b); }
static int64_t minSigned(int64_t a, int64_t b) { return std::min(a, b); }
static int64_t maxUnsigned(int64_t a, int64_t b) {
  return int64_t(std::max(uint64_t(a), uint64_t(b)));
}
static int64_t minUnsigned(int64_t a, int64_t b) {
  return int64_t(std::min(uint64_t(a), uint64_t(b)));
}

static unsigned widthOf(ElementKind kind) {
  return kind == ElementKind::I1 ? 1 : 8 * elementSize(kind);
}
/// The same bits as a number without a sign.
static uint64_t bits(ElementKind kind, int64_t value) {
  unsigned width = widthOf(kind);
  return width == 64 ? uint64_t(value) : uint64_t(value) & ((uint64_t(1) << width) - 1);
}

/// Division: the divisor 0, and the quotient that does not fit, are errors.
template <int64_t (*fn)(int64_t, int64_t), bool isSigned>
static Step divide(Fiber &fiber, const Instruction &i) {
  const int64_t *a = fiber.ints(i, 0), *b = fiber.ints(i, 1);
  int64_t *r = fiber.newInts(i);
  for (int64_t k = 0; k < i.count; ++k) {
    if (b[k] == 0 || (isSigned && b[k] == -1 && a[k] == INT64_MIN)) {
      i.op->emitError() << "divides " << a[k] << " by " << b[k];
      return Step::Failed;
    }
    r[k] = wrap(i.kind, isSigned ? fn(a[k], b[k])
                                 : fn(int64_t(bits(i.kind, a[k])), int64_t(bits(i.kind, b[k]))));
  }
  return Step::Next;
}
static int64_t divSigned(int64_t a, int64_t b) { return a / b; }
static int64_t remSigned(int64_t a, int64_t b) { return a % b; }
static int64_t floorDiv(int64_t a, int64_t b) { return llvm::divideFloorSigned(a, b); }
static int64_t ceilDiv(int64_t a, int64_t b) { return llvm::divideCeilSigned(a, b); }
static int64_t divUnsigned(int64_t a, int64_t b) { return int64_t(uint64_t(a) / uint64_t(b)); }
static int64_t remUnsigned(int64_t a, int64_t b) { return int64_t(uint64_t(a) % uint64_t(b)); }
static int64_t ceilDivUnsigned(int64_t a, int64_t b) {
  return int64_t(uint64_t(a) / uint64_t(b) + (uint64_t(a) % uint64_t(b) != 0));
}

enum class Shift { Left, Signed, Unsigned };
template <Shift shift> static Step shiftInts(Fiber &fiber, const Instruction &i) {
  const int64_t *a = fiber.ints(i, 0), *b = fiber.ints(i, 1);
  int64_t *r = fiber.newInts(i);
  for (int64_t k = 0; k < i.count; ++k) {
    uint64_t by = bits(i.kind, b[k]);
    if (by >= widthOf(i.kind)) {
      i.op->emitError() << "shifts by " << by << " of " << widthOf(i.kind) << " bits";
      return Step::Failed;
    }
    r[k] = wrap(i.kind, shift == Shift::Left     ? int64_t(uint64_t(a[k]) << by)
                        : shift == Shift::Signed ? a[k] >> by
                                                 : int64_t(bits(i.kind, a[k]) >> by));
  }
  return Step::Next;
}

//===----------------------------------------------------------------------===//
// Comparisons and selections
//===----------------------------------------------------------------------===//

template <typename Compare>
static Step compareInts(Fiber &fiber, const Instruction &i, Compare fn) {
  const int64_t *a = fiber.ints(i, 0), *b = fiber.ints(i, 1);
  int64_t *r = fiber.newInts(i);
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = fn(a[k], b[k]);
  return Step::Next;
}

/// The predicate for numbers of one bit, which are 0 and 1 here: with a sign 1 is less.
static arith::CmpIPredicate predicateOfBits(arith::CmpIPredicate predicate) {
  using P = arith::CmpIPredicate;
  switch (predicate) {
  case P::slt:
    return P::ugt;
  case P::sle:
    return P::uge;
  case P::sgt:
    return P::ult;
  case P::sge:
    return P::ule;
  default:
    return predicate;
  }
}

static Step compareInts(Fiber &fiber, const Instruction &i) {
  using P = arith::CmpIPredicate;
  switch (P(i.numbers[0])) {
  case P::eq:
    return compareInts(fiber, i, [](int64_t a, int64_t b) { return a == b; });
  case P::ne:
    return compareInts(fiber, i, [](int64_t a, int64_t b) { return a != b; });
  case P::slt:
    return compareInts(fiber, i, [](int64_t a, int64_t b) { return a < b; });
  case P::sle:
    return compareInts(fiber, i, [](int64_t a, int64_t b) { return a <= b; });
  case P::sgt:
    return compareInts(fiber, i, [](int64_t a, int64_t b) { return a > b; });
  case P::sge:
    return compareInts(fiber, i, [](int64_t a, int64_t b) { return a >= b; });
  // Sign extension keeps the order of numbers without a sign.
  case P::ult:
    return compareInts(fiber, i, [](uint64_t a, uint64_t b) { return a < b; });
  case P::ule:
    return compareInts(fiber, i, [](uint64_t a, uint64_t b) { return a <= b; });
  case P::ugt:
    return compareInts(fiber, i, [](uint64_t a, uint64_t b) { return a > b; });
  case P::uge:
    return compareInts(fiber, i, [](uint64_t a, uint64_t b) { return a >= b; });
  }
  llvm_unreachable("a predicate of cmpi");
}

template <typename Compare>
static Step compareFloats(Fiber &fiber, const Instruction &i, Compare fn) {
  const double *a = fiber.floats(i, 0), *b = fiber.floats(i, 1);
  int64_t *r = fiber.newInts(i);
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = fn(a[k], b[k]);
  return Step::Next;
}

static Step compareFloats(Fiber &fiber, const Instruction &i) {
  using P = arith::CmpFPredicate;
  switch (P(i.numbers[0])) {
  case P::AlwaysFalse:
    return compareFloats(fiber, i, [](float, float) { return false; });
  case P::AlwaysTrue:
    return compareFloats(fiber, i, [](float, float) { return true; });
  case P::OEQ:
    return compareFloats(fiber, i, [](double a, double b) { return a == b; });
  case P::OGT:
    return compareFloats(fiber, i, [](double a, double b) { return a > b; });
  case P::OGE:
    return compareFloats(fiber, i, [](double a, double b) { return a >= b; });
  case P::OLT:
    return compareFloats(fiber, i, [](double a, double b) { return a < b; });
  case P::OLE:
    return compareFloats(fiber, i, [](double a, double b) { return a <= b; });
  case P::ONE:
    return compareFloats(fiber, i, [](double a, double b) { return a < b || a > b; });
  case P::ORD:
    return compareFloats(fiber, i, [](double a, double b) { return a == a && b == b; });
  case P::UEQ:
    return compareFloats(fiber, i, [](double a, double b) { return !(a < b || a > b); });
  case P::UGT:
    return compareFloats(fiber, i, [](double a, double b) { return !(a <= b); });
  case P::UGE:
    return compareFloats(fiber, i, [](double a, double b) { return !(a < b); });
  case P::ULT:
    return compareFloats(fiber, i, [](double a, double b) { return !(a >= b); });
  case P::ULE:
    return compareFloats(fiber, i, [](double a, double b) { return !(a > b); });
  case P::UNE:
    return compareFloats(fiber, i, [](double a, double b) { return a != b; });
  case P::UNO:
    return compareFloats(fiber, i, [](double a, double b) { return a != a || b != b; });
  }
  llvm_unreachable("a predicate of cmpf");
}

template <typename OpTy>
static LogicalResult translateComparison(Translator &translator, Operation *op,
                                         Instruction::Handler handler) {
  Instruction &instruction = translator.emit(op, handler);
  instruction.numbers = {int64_t(cast<OpTy>(op).getPredicate())};
  // Not of the operands' kind, but they must be known too.
  if (failed(setShape(instruction, op->getOperand(0).getType())))
    return failure();
  return setShape(instruction, op->getResult(0).getType());
}

/// A scalar condition selects anything, a vector condition elements.
static Step selectWhole(Fiber &fiber, const Instruction &i) {
  fiber.result(i) = fiber.operand(i, fiber.integer(i, 0) ? 1 : 2);
  return Step::Next;
}
template <typename T>
static void choose(const int64_t *c, const T *a, const T *b, T *r, int64_t count) {
  for (int64_t k = 0; k < count; ++k)
    r[k] = c[k] ? a[k] : b[k];
}
static Step selectElements(Fiber &fiber, const Instruction &i) {
  const int64_t *c = fiber.ints(i, 0);
  if (isFloat(i.kind))
    choose(c, fiber.floats(i, 1), fiber.floats(i, 2), fiber.newFloats(i), i.count);
  else
    choose(c, fiber.ints(i, 1), fiber.ints(i, 2), fiber.newInts(i), i.count);
  return Step::Next;
}
static LogicalResult translateSelect(Translator &translator, Operation *op) {
  bool elements = isa<VectorType>(op->getOperand(0).getType());
  Instruction &instruction = translator.emit(op, elements ? selectElements : selectWhole);
  return setShape(instruction, op->getResult(0).getType());
}

//===----------------------------------------------------------------------===//
// Casts
//===----------------------------------------------------------------------===//

/// numbers[0]: the kind of the operand.
template <bool isSigned> static Step castInts(Fiber &fiber, const Instruction &i) {
  auto from = ElementKind(i.numbers[0]);
  const int64_t *a = fiber.ints(i, 0);
  int64_t *r = fiber.newInts(i);
  for (int64_t k = 0; k < i.count; ++k) {
    int64_t extended = !isSigned                 ? int64_t(bits(from, a[k]))
                       : from == ElementKind::I1 ? -a[k]
                                                 : a[k];
    r[k] = wrap(i.kind, extended);
  }
  return Step::Next;
}
template <bool isSigned> static Step intsToFloats(Fiber &fiber, const Instruction &i) {
  auto from = ElementKind(i.numbers[0]);
  const int64_t *a = fiber.ints(i, 0);
  double *r = fiber.newFloats(i);
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = isSigned ? double(from == ElementKind::I1 ? -a[k] : a[k]) : double(bits(from, a[k]));
  roundAll(i, r);
  return Step::Next;
}
template <bool isSigned> static Step floatsToInts(Fiber &fiber, const Instruction &i) {
  const double *a = fiber.floats(i, 0);
  int64_t *r = fiber.newInts(i);
  double low = isSigned ? -std::ldexp(1.0, int(widthOf(i.kind)) - 1) : 0;
  double high = std::ldexp(1.0, int(widthOf(i.kind)) - isSigned);
  for (int64_t k = 0; k < i.count; ++k) {
    double whole = std::trunc(a[k]);
    if (!(whole >= low && whole < high)) {
      i.op->emitError() << "converts " << a[k] << ", which does not fit";
      return Step::Failed;
    }
    r[k] = wrap(i.kind, isSigned ? int64_t(whole) : int64_t(uint64_t(whole)));
  }
  return Step::Next;
}

static int64_t encode(ElementKind kind, double value) {
  char element[8];
  storeNumber(kind, element, value);
  if (kind == ElementKind::F64) {
    int64_t word;
    std::memcpy(&word, element, 8);
    return word;
  }
  if (kind == ElementKind::F32) {
    int32_t word;
    std::memcpy(&word, element, 4);
    return word;
  }
  int16_t word;
  std::memcpy(&word, element, 2);
  return word;
}
static Step bitcast(Fiber &fiber, const Instruction &i) {
  auto from = ElementKind(i.numbers[0]);
  if (isFloat(from) == isFloat(i.kind)) {
    if (from == i.kind || !isFloat(from)) {
      fiber.result(i) = fiber.operand(i, 0);
      return Step::Next;
    }
  }
  for (int64_t k = 0; k < i.count; ++k) {
    int64_t word = isFloat(from) ? encode(from, fiber.floats(i, 0)[k]) : fiber.ints(i, 0)[k];
    if (k == 0)
      isFloat(i.kind) ? (void)fiber.newFloats(i) : (void)fiber.newInts(i);
    if (!isFloat(i.kind)) {
      const_cast<int64_t *>(fiber.result(i).ints())[k] = word;
      continue;
    }
    char element[8];
    std::memcpy(element, &word, 8);
    const_cast<double *>(fiber.result(i).floats())[k] = loadNumber(i.kind, element);
  }
  return Step::Next;
}

static void addCast(Translator &translator, StringRef name, Instruction::Handler handler) {
  translator.add(name, [handler](Translator &translator, Operation *op) {
    Instruction &instruction = translator.emit(op, handler);
    if (failed(setShape(instruction, op->getOperand(0).getType())))
      return failure();
    instruction.numbers = {int64_t(instruction.kind)};
    return setShape(instruction, op->getResult(0).getType());
  });
}

//===----------------------------------------------------------------------===//
// Random bits
//===----------------------------------------------------------------------===//

static Step drawBits(Fiber &fiber, const Instruction &i) {
  const int64_t *from[6];
  for (unsigned n = 0; n < 6; ++n)
    from[n] = fiber.ints(i, n);
  int64_t *r = fiber.newInts(i);
  for (int64_t k = 0; k < i.count; ++k)
    r[k] = wrap(i.kind,
                randomBits(from[0][k], from[1][k], from[2][k], from[3][k], from[4][k], from[5][k]));
  return Step::Next;
}

//===----------------------------------------------------------------------===//

static void registerIntegers(Translator &translator) {
  translator.add("arith.addi", intBinary<addInts>);
  translator.add("arith.subi", intBinary<subInts>);
  translator.add("arith.muli", intBinary<mulInts>);
  translator.add("arith.andi", intBinary<andInts>);
  translator.add("arith.ori", intBinary<orInts>);
  translator.add("arith.xori", intBinary<xorInts>);
  translator.add("arith.maxsi", intBinary<maxSigned>);
  translator.add("arith.minsi", intBinary<minSigned>);
  translator.add("arith.maxui", intBinary<maxUnsigned>);
  translator.add("arith.minui", intBinary<minUnsigned>);
  translator.add("arith.divsi", divide<divSigned, true>);
  translator.add("arith.remsi", divide<remSigned, true>);
  translator.add("arith.floordivsi", divide<floorDiv, true>);
  translator.add("arith.ceildivsi", divide<ceilDiv, true>);
  translator.add("arith.divui", divide<divUnsigned, false>);
  translator.add("arith.remui", divide<remUnsigned, false>);
  translator.add("arith.ceildivui", divide<ceilDivUnsigned, false>);
  translator.add("arith.shli", shiftInts<Shift::Left>);
  translator.add("arith.shrsi", shiftInts<Shift::Signed>);
  translator.add("arith.shrui", shiftInts<Shift::Unsigned>);
}

static void registerFloats(Translator &translator) {
  translator.add("arith.addf", floatBinary<addFloats>);
  translator.add("arith.subf", floatBinary<subFloats>);
  translator.add("arith.mulf", floatBinary<mulFloats>);
  translator.add("arith.divf", floatBinary<divFloats>);
  translator.add("arith.remf", floatBinary<remFloats>);
  translator.add("arith.maxnumf", floatBinary<maxNumber>);
  translator.add("arith.minnumf", floatBinary<minNumber>);
  translator.add("arith.maximumf", floatBinary<maximum>);
  translator.add("arith.minimumf", floatBinary<minimum>);
  translator.add("arith.negf", floatUnary<negFloat>);
  translator.add("arith.extf", floatUnary<sameFloat>);
  translator.add("arith.truncf", floatUnary<sameFloat>);
}

void interpreter::registerArith(Translator &translator) {
  translator.add("arith.constant", translateConstant);
  registerIntegers(translator);
  registerFloats(translator);
  translator.add("arith.cmpi", [](Translator &t, Operation *op) {
    auto compare = cast<arith::CmpIOp>(op);
    if (failed(translateComparison<arith::CmpIOp>(t, op, compareInts)))
      return failure();
    if (getElementTypeOrSelf(compare.getLhs().getType()).isInteger(1))
      t.at(t.here() - 1).numbers = {int64_t(predicateOfBits(compare.getPredicate()))};
    return success();
  });
  translator.add("arith.cmpf", [](Translator &t, Operation *op) {
    return translateComparison<arith::CmpFOp>(t, op, compareFloats);
  });
  translator.add("arith.select", translateSelect);
  translator.add("attn.random_bits", drawBits);
  addCast(translator, "arith.index_cast", castInts<true>);
  addCast(translator, "arith.index_castui", castInts<false>);
  addCast(translator, "arith.extsi", castInts<true>);
  addCast(translator, "arith.extui", castInts<false>);
  addCast(translator, "arith.trunci", castInts<true>);
  addCast(translator, "arith.sitofp", intsToFloats<true>);
  addCast(translator, "arith.uitofp", intsToFloats<false>);
  addCast(translator, "arith.fptosi", floatsToInts<true>);
  addCast(translator, "arith.fptoui", floatsToInts<false>);
  addCast(translator, "arith.bitcast", bitcast);
}
