// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Gradients against central differences of the reference's own forward.

#include "ParseFunction.h"
#include <cmath>
#include <random>

using namespace attn;

namespace {
/// A variant of attention with captures: what its regions say, and their
/// derivative where a test runs it.
struct Variant {
  std::string captures;  // "%cap, %n : f64, index", as in captures(...)
  std::string arguments; // ", %cap: f64, %n: index", of function and regions
  std::string score, mask;
  std::string gradient = "attn.yield %dt : f64";
  std::vector<RefTensorPtr> values;
  bool scale = false, sink = false;
  std::string gradientTypes;
  int64_t rows = 3, keys = 4;
};
} // namespace

static constexpr int64_t batch = 2, heads = 4, keyHeads = 2, depth = 2, valueDepth = 3;

static RefTensorPtr random(llvm::ArrayRef<int64_t> shape, unsigned seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  auto tensor = std::make_shared<RefTensor>(ElementKind::F64, shape);
  for (double &x : tensor->floats)
    x = normal(engine);
  return tensor;
}

/// @forward and @backward of a variant, all tensors f64. Every gradient but
/// those of Q, K and V is asked for by `gradientTypes`.
static std::string moduleOf(const Variant &variant) {
  std::string q = "tensor<?x?x?x2xf64>", v = "tensor<?x?x?x3xf64>", l = "tensor<?x?x?xf64>";
  std::string inputs = "%q: " + q + ", %k: " + q + ", %v: " + v;
  std::string operands;
  if (variant.scale) {
    inputs += ", %scale: f64";
    operands += " scale(%scale : f64)";
  }
  if (variant.sink) {
    inputs += ", %sink: tensor<?xf64>";
    operands += " sink(%sink : tensor<?xf64>)";
  }
  inputs += variant.arguments;
  if (!variant.captures.empty())
    operands += " captures(" + variant.captures + ")";
  std::string head = "%b: index, %h: index, %i: index, %j: index";
  auto region = [&](std::string name, std::string before, std::string after, std::string body) {
    return " " + name + " {\n^bb0(" + before + head + variant.arguments + after + "):\n" + body +
           "\n}";
  };
  std::string forward = operands, backward = operands;
  if (!variant.score.empty()) {
    forward += region("score", "%s: f64, ", "", variant.score);
    backward += region("score", "%s: f64, ", "", variant.score) +
                region("gradient", "%s: f64, ", ", %dt: f64", variant.gradient);
  }
  if (!variant.mask.empty()) {
    forward += region("mask", "", "", variant.mask);
    backward += region("mask", "", "", variant.mask);
  }
  std::string more, count = "3";
  unsigned gradients = 3;
  if (variant.scale) {
    more += " scale(tensor<f64>)";
    ++gradients;
  }
  if (variant.sink) {
    more += " sink(tensor<?xf64>)";
    ++gradients;
  }
  std::string types = q + ", " + q + ", " + v;
  if (variant.scale)
    types += ", tensor<f64>";
  if (variant.sink)
    types += ", tensor<?xf64>";
  if (!variant.gradientTypes.empty()) {
    more += " captures(" + variant.gradientTypes + ")";
    types += ", " + variant.gradientTypes;
    gradients += 1 + llvm::StringRef(variant.gradientTypes).count(", ");
  }
  std::string names;
  for (unsigned n = 0; n < gradients; ++n)
    names += (n ? ", %r" : "%r") + std::to_string(n);
  return "func.func @forward(" + inputs + ") -> (" + v + ", " + l + ") {\n" +
         "%o, %l = attn.forward %q, %k, %v" + forward + " : " + q + ", " + q + ", " + v + " -> " +
         v + ", " + l + "\nreturn %o, %l : " + v + ", " + l + "\n}\nfunc.func @backward(" + inputs +
         ", %o: " + v + ", %l: " + l + ", %do: " + v + ", %dl: " + l + ") -> (" + types + ") {\n" +
         names + " = attn.backward %do, %q, %k, %v, %o, %l lse_gradient(%dl : " + l + ")" +
         backward + " : " + v + ", " + q + ", " + q + ", " + v + ", " + v + ", " + l + " -> " + q +
         ", " + q + ", " + v + more + "\nreturn " + names + " : " + types + "\n}\n";
}

namespace {
/// A variant with random inputs and incoming gradients.
class Problem {
public:
  explicit Problem(const Variant &variant)
      : functions(moduleOf(variant)),
        arguments({random({batch, heads, variant.rows, depth}, 1),
                   random({batch, keyHeads, variant.keys, depth}, 2),
                   random({batch, keyHeads, variant.keys, valueDepth}, 3)}),
        outputGradient(random({batch, heads, variant.rows, valueDepth}, 4)),
        lseGradient(random({batch, heads, variant.rows}, 5)) {
    if (variant.scale)
      arguments.push_back(floats({}, {0.7}, ElementKind::F64));
    if (variant.sink)
      arguments.push_back(random({heads}, 6));
    llvm::append_range(arguments, variant.values);
  }

  std::vector<RefTensorPtr> forward(llvm::ArrayRef<RefTensorPtr> values) {
    return run("forward", values);
  }
  std::vector<RefTensorPtr> backward(Precision precision = Precision::Exact) {
    std::vector<RefTensorPtr> values = arguments;
    llvm::append_range(values, saved.empty() ? forward(arguments) : saved);
    values.push_back(outputGradient);
    values.push_back(lseGradient);
    return run("backward", values, precision);
  }
  /// sum O dO + sum LSE dLSE, where LSE is finite.
  double loss(llvm::ArrayRef<RefTensorPtr> values) {
    auto results = forward(values);
    double sum = 0;
    for (auto [x, weight] : llvm::zip(results[0]->floats, outputGradient->floats))
      sum += x * weight;
    for (auto [x, weight] : llvm::zip(results[1]->floats, lseGradient->floats))
      if (std::isfinite(x))
        sum += x * weight;
    return sum;
  }

  ParsedFunction functions;
  std::vector<RefTensorPtr> arguments;
  RefTensorPtr outputGradient, lseGradient;
  /// O and LSE where they are not the forward's.
  std::vector<RefTensorPtr> saved;

private:
  std::vector<RefTensorPtr> run(llvm::StringRef name, llvm::ArrayRef<RefTensorPtr> values,
                                Precision precision = Precision::Exact) {
    auto results = evaluate(functions[name], values, precision);
    if (results)
      return *results;
    ADD_FAILURE() << llvm::toString(results.takeError());
    return {};
  }
};
} // namespace

/// The derivative by one element of one argument, with the error term in h^2
/// taken away.
static double difference(Problem &problem, unsigned argument, int64_t element) {
  auto slope = [&](double h) {
    double sides[2];
    for (int side : {0, 1}) {
      auto moved = std::make_shared<RefTensor>(*problem.arguments[argument]);
      moved->floats[element] += side ? h : -h;
      std::vector<RefTensorPtr> values = problem.arguments;
      values[argument] = moved;
      sides[side] = problem.loss(values);
    }
    return (sides[1] - sides[0]) / (2 * h);
  };
  return (4 * slope(5e-4) - slope(1e-3)) / 3;
}

static void check(const Variant &variant) {
  Problem problem(variant);
  auto gradients = problem.backward();
  unsigned position = 0;
  for (unsigned argument = 0; argument < problem.arguments.size(); ++argument) {
    if (!isFloat(problem.arguments[argument]->kind))
      continue;
    ASSERT_LT(position, gradients.size());
    const RefTensor &gradient = *gradients[position++];
    EXPECT_EQ(gradient.shape, problem.arguments[argument]->shape);
    for (int64_t element = 0; element < gradient.size(); ++element) {
      double expected = difference(problem, argument, element);
      EXPECT_NEAR(gradient.floats[element], expected, 1e-6 * std::max(1.0, std::fabs(expected)))
          << "argument " << argument << ", element " << element;
    }
  }
  EXPECT_EQ(position, gradients.size());
}

static const char *const causal = R"(
  %keep = arith.cmpi sge, %i, %j : index
  attn.yield %keep : i1)";
/// Row 0 has no key, row 1 one.
static const char *const strictlyCausal = R"(
  %keep = arith.cmpi sgt, %i, %j : index
  attn.yield %keep : i1)";

static Variant biased(const char *type, const char *index, RefTensorPtr value) {
  Variant variant;
  variant.captures = std::string("%t : ") + type;
  variant.arguments = std::string(", %t: ") + type;
  variant.score = std::string("%e = tensor.extract %t[") + index + "] : " + type +
                  "\n%r = arith.addf %s, %e : f64\nattn.yield %r : f64";
  variant.gradientTypes = type;
  variant.values = {std::move(value)};
  return variant;
}

TEST(Gradient, Plain) { check({}); }

TEST(Gradient, Masks) {
  Variant variant;
  for (const char *mask : {causal, strictlyCausal, R"(
      %c1 = arith.constant 1 : index
      %d = arith.subi %i, %j : index
      %last = arith.addi %j, %c1 : index
      %near = arith.cmpi sle, %d, %c1 : index
      %after = arith.cmpi sle, %i, %last : index
      %keep = arith.andi %near, %after : i1
      attn.yield %keep : i1)"}) {
    variant.mask = mask;
    check(variant);
  }
}

TEST(Gradient, ScaleAndSink) {
  Variant variant;
  variant.scale = variant.sink = true;
  check(variant);
  variant.mask = strictlyCausal;
  check(variant);
}

TEST(Gradient, Biases) {
  check(biased("tensor<?x?x?x?xf64>", "%b, %h, %i, %j", random({batch, heads, 3, 4}, 7)));
  check(biased("tensor<?xf64>", "%j", random({4}, 8)));
  check(biased("tensor<?x?xf64>", "%h, %i", random({heads, 3}, 9)));
  Variant causalBias = biased("tensor<?xf64>", "%j", random({4}, 8));
  causalBias.mask = strictlyCausal;
  check(causalBias);
}

// An element that is fixed along a row, and one that the score does not reach.
TEST(Gradient, Slope) {
  Variant variant = biased("tensor<?xf64>", "%h", random({heads + 1}, 10));
  variant.score = R"(
    %e = tensor.extract %t[%h] : tensor<?xf64>
    %d = arith.subi %i, %j : index
    %di = arith.index_cast %d : index to i64
    %df = arith.sitofp %di : i64 to f64
    %a = math.absf %df : f64
    %p = arith.mulf %e, %a : f64
    %r = arith.subf %s, %p : f64
    attn.yield %r : f64)";
  variant.mask = causal;
  check(variant);
}

// Many pairs read one element.
TEST(Gradient, Table) {
  Variant variant = biased("tensor<?x?xf64>", "%h, %n", random({heads, 2}, 11));
  variant.score = R"(
    %c2 = arith.constant 2 : index
    %sum = arith.addi %i, %j : index
    %n = arith.remui %sum, %c2 : index
    )" + variant.score;
  check(variant);
}

static Variant softcap() {
  Variant variant;
  variant.captures = "%cap : f64";
  variant.arguments = ", %cap: f64";
  variant.score = R"(
    %d = arith.divf %s, %cap : f64
    %t = math.tanh %d : f64
    %r = arith.mulf %t, %cap : f64
    attn.yield %r : f64)";
  variant.gradient = R"(
    %d = arith.divf %s, %cap : f64
    %t = math.tanh %d : f64
    %one = arith.constant 1.0 : f64
    %tt = arith.mulf %t, %t : f64
    %slope = arith.subf %one, %tt : f64
    %ds = arith.mulf %dt, %slope : f64
    %direct = arith.mulf %dt, %t : f64
    %inner = arith.mulf %ds, %d : f64
    %dc = arith.subf %direct, %inner : f64
    attn.accumulate %dc into %cap : f64 into f64
    attn.yield %ds : f64)";
  variant.gradientTypes = "tensor<f64>";
  variant.values = {floats({}, {0.8}, ElementKind::F64)};
  return variant;
}

TEST(Gradient, Softcap) { check(softcap()); }

// Every float op that the interpreter knows, away from its singular points.
TEST(Gradient, ScalarOps) {
  Variant variant = softcap();
  for (const char *op : {"math.acos %u",
                         "math.asin %u",
                         "math.atan %s",
                         "math.cbrt %p",
                         "math.cos %s",
                         "math.cosh %s",
                         "math.erf %s",
                         "math.exp %s",
                         "math.exp2 %s",
                         "math.expm1 %s",
                         "math.log %p",
                         "math.log10 %p",
                         "math.log1p %p",
                         "math.log2 %p",
                         "math.rsqrt %p",
                         "math.sin %s",
                         "math.sinh %s",
                         "math.sqrt %p",
                         "math.tan %u",
                         "math.absf %s",
                         "arith.negf %s",
                         "math.atan2 %s, %cap",
                         "math.copysign %s, %cap",
                         "arith.divf %cap, %p",
                         "arith.remf %s, %cap",
                         "math.powf %p, %cap",
                         "arith.maximumf %s, %cap",
                         "arith.minnumf %s, %cap",
                         "math.fma %s, %cap, %p"}) {
    variant.score = std::string(R"(
      %half = arith.constant 0.5 : f64
      %t = math.tanh %s : f64
      %u = arith.mulf %t, %half : f64
      %p = math.exp %s : f64
      %x = )") + op +
                    R"( : f64
      %y = arith.mulf %x, %cap : f64
      %z = arith.addf %y, %s : f64
      attn.yield %z : f64)";
    SCOPED_TRACE(op);
    check(variant);
  }
}

// The side that is not taken adds nothing, though its slope is not a number.
TEST(Gradient, Select) {
  Variant variant = softcap();
  variant.score = R"(
    %zero = arith.constant 0.0 : f64
    %positive = arith.cmpf ogt, %s, %zero : f64
    %root = math.sqrt %s : f64
    %x = arith.select %positive, %root, %cap : f64
    attn.yield %x : f64)";
  check(variant);
}

// Half of the gradient to each of two equal operands.
TEST(Gradient, Tie) {
  Variant variant = softcap();
  variant.score = R"(
    %double = arith.addf %cap, %cap : f64
    %zero = arith.constant 0.0 : f64
    %none = arith.mulf %s, %zero : f64
    %other = arith.addf %none, %cap : f64
    %x = arith.maxnumf %other, %double : f64
    %m = arith.maxnumf %cap, %cap : f64
    attn.yield %m : f64)";
  Variant plain = variant;
  plain.score = "attn.yield %cap : f64";
  auto tie = Problem(variant).backward(), whole = Problem(plain).backward();
  EXPECT_NEAR(tie[3]->floats[0], whole[3]->floats[0], 1e-14);
}

// The gradient region is what runs in the same type, and only there.
TEST(Gradient, Region) {
  Problem problem(softcap());
  auto exact = problem.backward(), same = problem.backward(Precision::SameType);
  for (unsigned n = 0; n < exact.size(); ++n)
    for (int64_t i = 0; i < exact[n]->size(); ++i)
      EXPECT_NEAR(same[n]->floats[i], exact[n]->floats[i], 1e-12);
  Variant wrong = softcap();
  wrong.gradient = "attn.yield %dt : f64";
  Problem other(wrong);
  EXPECT_EQ(other.backward()[3]->floats, exact[3]->floats);
  EXPECT_EQ(other.backward(Precision::SameType)[3]->floats[0], 0);
}

// Rows without keys: zeros, whatever dO holds there and however LSE says so.
TEST(Gradient, MaskedRows) {
  for (double empty : {-INFINITY, INFINITY}) {
    Variant variant;
    variant.mask = strictlyCausal;
    Problem problem(variant);
    auto expected = problem.backward();
    auto gradient = std::make_shared<RefTensor>(*problem.outputGradient);
    auto saved = problem.forward(problem.arguments);
    auto lse = std::make_shared<RefTensor>(*saved[1]);
    for (int64_t row = 0; row < batch * heads; ++row) {
      EXPECT_EQ(lse->floats[row * 3], -INFINITY);
      lse->floats[row * 3] = empty;
      gradient->floats[row * 3 * valueDepth] = INFINITY;
      gradient->floats[row * 3 * valueDepth + 1] = NAN;
    }
    problem.outputGradient = gradient;
    problem.saved = {saved[0], lse};
    for (Precision precision : {Precision::Exact, Precision::SameType}) {
      auto got = problem.backward(precision);
      for (unsigned n = 0; n < got.size(); ++n)
        for (int64_t i = 0; i < got[n]->size(); ++i)
          EXPECT_NEAR(got[n]->floats[i], expected[n]->floats[i], 1e-13);
      for (int64_t d = 0; d < depth; ++d)
        EXPECT_EQ(got[0]->floats[d], 0);
    }
  }
}

// Nothing to attend to: only the sink has a gradient, that of LSE.
TEST(Gradient, NoKeys) {
  Variant variant;
  variant.sink = true;
  variant.keys = 0;
  check(variant);
}

// Other orders of the sums give the same up to rounding, and not the same bits.
TEST(Gradient, Orders) {
  Problem problem(softcap());
  std::vector<RefTensorPtr> values = problem.arguments;
  llvm::append_range(values, problem.forward(problem.arguments));
  values.push_back(problem.outputGradient);
  values.push_back(problem.lseGradient);
  auto first = evaluate(problem.functions["backward"], values, Precision::SameType);
  ASSERT_TRUE(bool(first));
  bool differs = false;
  for (unsigned order = 1; order < 4; ++order) {
    auto other = evaluate(problem.functions["backward"], values, Precision::SameType, order);
    ASSERT_TRUE(bool(other));
    for (unsigned n = 0; n < first->size(); ++n) {
      differs |= (*other)[n]->floats != (*first)[n]->floats;
      for (int64_t i = 0; i < (*first)[n]->size(); ++i)
        EXPECT_NEAR((*other)[n]->floats[i], (*first)[n]->floats[i], 1e-12);
    }
  }
  EXPECT_TRUE(differs);
}

// attn.softmax_backward, with a temperature and a mask.
TEST(Gradient, Softmax) {
  std::string regions = R"( captures(%w : f64) score {
      ^bb0(%s: f64, %i: index, %j: index, %c: f64):
        %r = arith.mulf %s, %c : f64
        attn.yield %r : f64
      })",
              gradient = R"( gradient {
      ^bb0(%s: f64, %i: index, %j: index, %c: f64, %dt: f64):
        %ds = arith.mulf %dt, %c : f64
        %dc = arith.mulf %dt, %s : f64
        attn.accumulate %dc into %c : f64 into f64
        attn.yield %ds : f64
      })",
              mask = R"( mask {
      ^bb0(%i: index, %j: index, %c: f64):
        %keep = arith.cmpi sgt, %i, %j : index
        attn.yield %keep : i1
      })";
  ParsedFunction functions(
      "func.func @f(%x: tensor<3x4xf64>, %w: f64) -> tensor<3x4xf64> {\n"
      "%y = attn.softmax %x" +
      regions + mask +
      " : tensor<3x4xf64>\n"
      "return %y : tensor<3x4xf64>\n}\n"
      "func.func @g(%x: tensor<3x4xf64>, %w: f64, %y: tensor<3x4xf64>, %dy: tensor<3x4xf64>)\n"
      "    -> (tensor<3x4xf64>, tensor<f64>) {\n"
      "%dx, %dw = attn.softmax_backward %dy, %x, %y" +
      regions + gradient + mask +
      " : tensor<3x4xf64> -> captures(tensor<f64>)\n"
      "return %dx, %dw : tensor<3x4xf64>, tensor<f64>\n}\n");
  RefTensorPtr x = random({3, 4}, 1), dy = random({3, 4}, 2);
  auto forward = [&](RefTensorPtr x, double w) {
    auto y = evaluate(functions["f"], {x, floats({}, {w}, ElementKind::F64)}, Precision::Exact);
    return llvm::cantFail(std::move(y))[0];
  };
  auto loss = [&](RefTensorPtr x, double w) {
    double sum = 0;
    RefTensorPtr y = forward(x, w);
    for (unsigned n = 0; n < 12; ++n)
      sum += y->floats[n] * dy->floats[n];
    return sum;
  };
  for (Precision precision : {Precision::Exact, Precision::SameType}) {
    auto got = llvm::cantFail(evaluate(
        functions["g"], {x, floats({}, {0.7}, ElementKind::F64), forward(x, 0.7), dy}, precision));
    const double h = 1e-5;
    for (unsigned n = 0; n < 12; ++n) {
      auto up = std::make_shared<RefTensor>(*x), down = std::make_shared<RefTensor>(*x);
      up->floats[n] += h;
      down->floats[n] -= h;
      EXPECT_NEAR(got[0]->floats[n], (loss(up, 0.7) - loss(down, 0.7)) / (2 * h), 1e-8);
    }
    EXPECT_NEAR(got[1]->floats[0], (loss(x, 0.7 + h) - loss(x, 0.7 - h)) / (2 * h), 1e-8);
  }
}
