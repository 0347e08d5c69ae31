// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "HomogeneousUpdate.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace attn;
using namespace attn::detail;

namespace {
/// One question about one update.
class Matcher {
public:
  Matcher(unsigned number, ArrayRef<RunningValue> values, const Update &update, Refusal &refusal)
      : values(values), value(values[number]), factor(update.factor), term(update.term),
        refusal(refusal) {}

  LogicalResult checkTerm();
  LogicalResult checkPivot(unsigned pivot);

private:
  bool isExpectedFactor(unsigned pivot, const Degrees &ofFactor, const Degrees *ofTerm,
                        bool vanishes);
  std::string formatExpected(unsigned pivot) const;
  LogicalResult refuse(const Twine &why) {
    return refusal.set(value.after.getDefiningOp(), value.statement + " " + why);
  }

  ArrayRef<RunningValue> values;
  const RunningValue &value;
  const ScalarForm &factor;
  const std::optional<ScalarForm> &term;
  Refusal &refusal;
};
} // namespace

/// "exp(m_old - m_new)", or what is known of it.
std::string Matcher::formatExpected(unsigned pivot) const {
  const std::string &name = values[pivot].name;
  auto format = [&](double k, StringRef more, StringRef less) {
    std::string text = llvm::formatv("{0}_{1}", name, k < 0 ? "old" : "new");
    text += more.str() + name + (k < 0 ? "_new" : "_old");
    double size = std::abs(k);
    return isSame(size, 1) ? text : llvm::formatv("({0}){1}{2:f}", text, less, size).str();
  };
  if (term && term->isProduct) {
    for (auto [symbol, k] : term->exponents)
      if (symbol.value == pivot)
        return "exp(" + format(k, " - ", " * ") +
               (symbol.factor ? ", scaled as in its term)" : ")");
    for (auto [symbol, k] : term->powers)
      if (symbol.value == pivot)
        return format(k, " / ", " ^ ");
    return "1";
  }
  return "of one degree in " + name + "_old and " + name + "_new";
}

LogicalResult Matcher::checkTerm() {
  if (!term)
    return success();
  if (!term->isProduct) {
    std::string where =
        term->broken ? " ('" + term->broken->getName().getStringRef().str() + "' breaks the form)"
                     : "";
    std::string names;
    for (unsigned pivot : value.reads)
      names += (names.empty() ? "" : " and ") + values[pivot].name;
    return refuse("adds a term that is not homogeneous in the running value of " + names + where);
  }
  for (const Degrees *degrees : {&term->exponents, &term->powers})
    for (auto [symbol, k] : *degrees)
      if (!symbol.isAfter)
        return refuse("adds a term with the value of " + values[symbol.value].name +
                      " from before its update");
  return success();
}

/// The part of `degrees` that is of `pivot`, before or after its update.
static Degrees getPart(const Degrees &degrees, unsigned pivot, bool isAfter) {
  Degrees part;
  for (auto [symbol, k] : degrees)
    if (symbol.value == pivot && symbol.isAfter == isAfter)
      part[symbol] = k;
  return part;
}

/// Whether the factor has in the new value the degrees of the term, and their opposites in the old
/// one. With `vanishes`, an old value may be the plain one where the new one is guarded: the factor
/// is then 0 after a maximum of -inf, and so are the terms until then.
bool Matcher::isExpectedFactor(unsigned pivot, const Degrees &ofFactor, const Degrees *ofTerm,
                               bool vanishes) {
  Degrees after = getPart(ofFactor, pivot, true), before = getPart(ofFactor, pivot, false);
  if (ofTerm) {
    Degrees expected = getPart(*ofTerm, pivot, true);
    if (expected.size() != after.size())
      return false;
    for (auto [symbol, k] : expected)
      if (auto found = after.find(symbol); found == after.end() || !isSame(found->second, k))
        return false;
  }
  if (before.size() != after.size())
    return false;
  for (auto [symbol, k] : after) {
    Symbol old = symbol;
    old.isAfter = false;
    auto found = before.find(old);
    if (found == before.end() && symbol.isGuarded && vanishes) {
      old.isGuarded = false;
      found = before.find(old);
    }
    if (found == before.end() || !isSame(found->second, -k))
      return false;
  }
  return true;
}

LogicalResult Matcher::checkPivot(unsigned pivot) {
  const RunningValue &read = values[pivot];
  auto has = [&](const Degrees &degrees) {
    return llvm::any_of(degrees, [&](const auto &entry) { return entry.first.value == pivot; });
  };
  auto isExpected = [&](bool vanishes) {
    return factor.isProduct && factor.restIsOne &&
           isExpectedFactor(pivot, factor.exponents, term ? &term->exponents : nullptr, vanishes) &&
           isExpectedFactor(pivot, factor.powers, term ? &term->powers : nullptr, vanishes);
  };
  if (!isExpected(/*vanishes=*/true))
    return refuse("reads the running value of " + read.name + " with a factor that is not " +
                  formatExpected(pivot));
  if (!isExpected(!term || term->zero.count(pivot) != 0))
    return refuse("guards " + read.name +
                  " against -inf only behind its update, and its term need "
                  "not be 0 where the score is -inf");
  if (has(factor.exponents) && !read.isExtremum)
    return refuse("takes the exponential of the running value of " + read.name +
                  ", expected that of a maximum or minimum");
  return success();
}

FailureOr<HomogeneousUpdate> attn::detail::matchHomogeneousUpdate(unsigned number,
                                                                  ArrayRef<RunningValue> values,
                                                                  ScalarDegrees &degrees,
                                                                  affine::AffineForOp loop,
                                                                  Refusal &refusal) {
  const RunningValue &value = values[number];
  Operation *after = value.after.getDefiningOp();
  for (unsigned pivot : value.reads) {
    const RunningValue &read = values[pivot];
    if (read.load->getParentOp() != loop)
      return refusal.set(after, value.statement + " reads the running value of " + read.name +
                                    ", which is updated in a loop inside");
  }
  Update update = degrees.ofUpdate(number);
  if (update.broken)
    return refusal.set(after, value.statement + " is not the old value of " + value.name +
                                  " times a factor, plus a term: '" +
                                  update.broken->getName().getStringRef() + "' breaks the form");
  Matcher matcher(number, values, update, refusal);
  if (failed(matcher.checkTerm()))
    return failure();
  for (unsigned pivot : value.reads)
    if (failed(matcher.checkPivot(pivot)))
      return failure();
  HomogeneousUpdate result;
  result.isScaled = !update.factor.exponents.empty() || !update.factor.powers.empty();
  result.hasTerm = update.term.has_value();
  return result;
}
