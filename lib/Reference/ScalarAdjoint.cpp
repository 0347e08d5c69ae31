// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Derivatives of scalar programs in reverse mode. See ScalarProgram.h. The
// rules are those of calculus, written here a second time: they are what the
// compiler's own derivatives are checked against.

#include "ScalarOpcodes.h"
#include <cmath>
#include <utility>

using namespace attn;

/// Of min and max: everything to the operand that was chosen, `aFirst` if that
/// is the first; half to each of two equals.
static void choose(double a, double b, bool aFirst, bool ignoresNaN, double *derivatives) {
  bool aIsNaN = std::isnan(a), bIsNaN = std::isnan(b);
  double first = a == b ? 0.5 : aFirst ? 1 : 0;
  if (aIsNaN != bIsNaN)
    first = aIsNaN == ignoresNaN ? 0 : 1;
  derivatives[0] = first;
  derivatives[1] = 1 - first;
}

static void power(double a, double b, double *derivatives) {
  derivatives[0] = b == 0 ? 0 : b * std::pow(a, b - 1);
  // x^b is 0 for every b > 0 at x = 0.
  derivatives[1] = a == 0 && b > 0 ? 0 : std::pow(a, b) * std::log(a);
}

/// The partial derivatives of a float instruction by its float operands.
void ScalarProgram::partials(const Instruction &instruction, const Slot *slots,
                             double *derivatives) {
  double a = slots[instruction.operands[0]].f, b = slots[instruction.operands[1]].f;
  double &da = derivatives[0], &db = derivatives[1];
  switch (instruction.code) {
#define CASE(CODE, ...)                                                                            \
  case Opcode::CODE:                                                                               \
    __VA_ARGS__;                                                                                   \
    return;
    CASE(AddF, da = db = 1)
    CASE(SubF, da = 1; db = -1)
    CASE(MulF, da = b; db = a)
    CASE(DivF, da = 1 / b; db = -a / (b * b))
    CASE(RemF, da = 1; db = -std::trunc(a / b))
    CASE(NegF, da = -1)
    CASE(MinimumF, choose(a, b, a < b, false, derivatives))
    CASE(MaximumF, choose(a, b, a > b, false, derivatives))
    CASE(MinNumF, choose(a, b, a < b, true, derivatives))
    CASE(MaxNumF, choose(a, b, a > b, true, derivatives))
    CASE(ExtF, da = 1)
    CASE(TruncF, da = 1)
    CASE(AbsF, da = a > 0 ? 1 : a < 0 ? -1 : 0)
    CASE(Acos, da = -1 / std::sqrt(1 - a * a))
    CASE(Asin, da = 1 / std::sqrt(1 - a * a))
    CASE(Atan, da = 1 / (1 + a * a))
    CASE(Atan2, da = b / (a * a + b * b); db = -a / (a * a + b * b))
    CASE(Cbrt, da = 1 / (3 * std::cbrt(a) * std::cbrt(a)))
    CASE(CopySign, da = std::signbit(a) == std::signbit(b) ? 1 : -1)
    CASE(Cos, da = -std::sin(a))
    CASE(Cosh, da = std::sinh(a))
    CASE(Erf, da = M_2_SQRTPI * std::exp(-a * a))
    CASE(Exp, da = std::exp(a))
    CASE(Exp2, da = M_LN2 * std::exp2(a))
    CASE(ExpM1, da = std::exp(a))
    CASE(Fma, da = b; db = a; derivatives[2] = 1)
    CASE(Log, da = 1 / a)
    CASE(Log10, da = M_LOG10E / a)
    CASE(Log1p, da = 1 / (1 + a))
    CASE(Log2, da = M_LOG2E / a)
    CASE(PowF, power(a, b, derivatives))
    CASE(Rsqrt, da = -0.5 / (a * std::sqrt(a)))
    CASE(Sin, da = std::cos(a))
    CASE(Sinh, da = std::cosh(a))
    CASE(Sqrt, da = 0.5 / std::sqrt(a))
    CASE(Tan, da = 1 / (std::cos(a) * std::cos(a)))
    CASE(Tanh, da = 1 / (std::cosh(a) * std::cosh(a)))
#undef CASE
  default: // steps: constant where they are differentiable
    return;
  }
}

void ScalarProgram::reverse(const std::vector<Instruction> &code, const Slot *slots,
                            double *adjoints, ReadAdjoint read) {
  for (const Instruction &instruction : llvm::reverse(code)) {
    // A branch that was not taken gets exactly nothing, whatever its slope.
    double adjoint = std::exchange(adjoints[instruction.target], 0.0);
    if (adjoint == 0)
      continue;
    const unsigned *operands = instruction.operands;
    if (instruction.code == Opcode::Extract) {
      if (!isFloat(instruction.tensor->kind))
        continue;
      int64_t position = 0;
      for (auto [dim, slot] : llvm::enumerate(instruction.indices))
        position = position * instruction.tensor->shape[dim] + slots[slot].i;
      read(instruction.argument, position, adjoint);
    } else if (instruction.code == Opcode::SelectF) {
      adjoints[slots[operands[0]].i ? operands[1] : operands[2]] += adjoint;
    } else if (instruction.code >= Opcode::AddF) {
      double derivatives[3] = {0, 0, 0};
      partials(instruction, slots, derivatives);
      for (unsigned n = 0; n < 3; ++n)
        if (derivatives[n] != 0)
          adjoints[operands[n]] += adjoint * derivatives[n];
    }
  }
}
