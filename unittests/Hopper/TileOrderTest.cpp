// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// For every order of tiles and all counts of lines, tiles and CTAs up to a bound: each role visits
// the same tiles in the same order, and each tile is visited once.

#include "TileOrder.h"
#include "attn/Registration/Registration.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "gtest/gtest.h"
#include <set>

using namespace attn;

namespace {

constexpr int64_t kMostLines = 12, kMostTiles = 24, kMostCtas = 16;

/// A mask, as operations on %i and %j.
struct Mask {
  const char *name, *text;
  bool readsDocuments = false;
};
const Mask kMasks[] = {
    {"none", ""},
    {"causal", "%keep = arith.cmpi sge, %i, %j : index"},
    {"causal_br", "%d = arith.addi %i, %offset : index\n"
                  "%keep = arith.cmpi sge, %d, %j : index"},
    {"window", "%a = arith.subi %i, %c200 : index\n%b1 = arith.addi %i, %c64 : index\n"
               "%x = arith.cmpi sge, %j, %a : index\n%y = arith.cmpi sle, %j, %b1 : index\n"
               "%keep = arith.andi %x, %y : i1"},
    {"window_br", "%d = arith.addi %i, %offset : index\n%a = arith.subi %d, %c200 : index\n"
                  "%x = arith.cmpi sge, %j, %a : index\n%y = arith.cmpi sle, %j, %d : index\n"
                  "%keep = arith.andi %x, %y : i1"},
    {"left", "%a = arith.subi %i, %c200 : index\n%keep = arith.cmpi sge, %j, %a : index"},
    {"left_br", "%d = arith.addi %i, %offset : index\n%a = arith.subi %d, %c64 : index\n"
                "%keep = arith.cmpi sge, %j, %a : index"},
    {"right", "%a = arith.addi %i, %c64 : index\n%keep = arith.cmpi sle, %j, %a : index"},
    {"prefix", "%a = arith.cmpi slt, %j, %c200 : index\n%x = arith.cmpi sge, %i, %j : index\n"
               "%keep = arith.ori %a, %x : i1"},
    {"documents",
     "%a = tensor.extract %documents[%b, %i] : tensor<?x?xi32>\n"
     "%x = tensor.extract %documents[%b, %j] : tensor<?x?xi32>\n"
     "%keep = arith.cmpi eq, %a, %x : i32",
     true},
};

std::string makeModule(const Mask &mask, int64_t columns) {
  std::string type = llvm::formatv("tensor<?x?x?x{0}xbf16>", columns), captures, declared, region;
  std::string argument = mask.readsDocuments ? ", %document: tensor<?x?xi32>" : "";
  if (*mask.text) {
    captures = " captures(%offset, %c64, %c200";
    captures += mask.readsDocuments ? ", %document : index, index, index, tensor<?x?xi32>)"
                                    : " : index, index, index)";
    declared = ", %offset: index, %c64: index, %c200: index";
    declared += mask.readsDocuments ? ", %documents: tensor<?x?xi32>" : "";
    region = llvm::formatv("mask {{\n^bb0(%b: index, %h: index, %i: index, %j: index{0}):\n{1}\n"
                           "attn.yield %keep : i1\n}\n",
                           declared, mask.text);
  }
  return llvm::formatv(
      "func.func @main(%q: {0}, %k: {0}, %v: {0}{1}) -> ({0}, tensor<?x?x?xf32>) {{\n"
      "%c2 = arith.constant 2 : index\n%c64 = arith.constant 64 : index\n"
      "%c200 = arith.constant 200 : index\n"
      "%queries = tensor.dim %q, %c2 : {0}\n%keys = tensor.dim %k, %c2 : {0}\n"
      "%offset = arith.subi %keys, %queries : index\n"
      "%o, %lse = attn.forward %q, %k, %v{2}\n{3} : {0}, {0}, {0} -> {0}, tensor<?x?x?xf32>\n"
      "return %o, %lse : {0}, tensor<?x?x?xf32>\n}\n",
      type, argument, captures, region);
}

/// What the compiler makes of a mask.
struct Variant {
  const char *mask;
  int64_t columns;
  const char *options;
  bool ofGradient;
};
/// All orders that there are.
const Variant kVariants[] = {
    {"none", 128, "fix-maxima=true", false}, // every n-th tile
    {"none", 128, "cluster=2", false},       // of a cluster
    {"causal", 64, "", false},               // pairs, two CTAs beside each other
    {"causal_br", 128, "", false},           // pairs, the last ones longest
    {"left_br", 128, "", false},             // the first ones longest
    {"left", 128, "", false},
    {"right", 256, "", false},
    {"prefix", 128, "", false},
    {"window", 64, "", false}, // a band
    {"window", 128, "", false},
    {"window_br", 128, "", false},
    {"documents", 64, "", false},                             // sorted
    {"documents", 128, "", false},                            // in groups
    {"none", 128, "order=n_outer", true},                     // starts at different places
    {"none", 128, "order=n_outer deterministic=true", true},  // dealt
    {"causal", 64, "order=n_outer deterministic=true", true}, // dealt, growing
    {"causal_br", 128, "order=n_outer deterministic=true", true},
    {"causal_br", 128, "order=n_outer", true},
    {"window_br", 128, "order=n_outer", true},
    {"documents", 128, "order=n_outer", true},
    {"causal_br", 128, "order=m_outer", true}, // both nests
    {"window_br", 128, "order=m_outer", true},
    {"left", 128, "order=m_outer", true},
};

/// What is wrong for some counts of lines and tiles; empty if nothing is.
std::string sweep(TileOrder &order, int64_t mostLines, int64_t mostTiles) {
  for (int64_t lines = 1; lines <= mostLines; ++lines)
    for (int64_t tiles = 0; tiles <= mostTiles; ++tiles) {
      // Lines are heads, batch elements, or both; keys as many as queries, more, or less.
      Sizes sizes = {lines, 1, 1, tiles * 128, tiles * 128};
      if (lines % 2 == 0)
        sizes = {2, lines / 2, 1, tiles * 128 - (tiles > 1), tiles * 64 + 32};
      else if (lines % 3 == 0)
        sizes = {1, lines / 3, 3, tiles * 128, tiles * 192};
      std::string problem = order.check(sizes);
      if (!problem.empty())
        return llvm::formatv("{0} lines of {1} tiles: {2}", lines, tiles, problem);
    }
  return "";
}

class TileOrders : public testing::Test {
protected:
  TileOrders() {
    static bool once = (registerPasses(), true);
    (void)once;
    mlir::DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    context.loadAllAvailableDialects();
    context.disableMultithreading();
  }

  std::vector<Kernel> make(const Variant &variant) {
    for (const Mask &mask : kMasks)
      if (llvm::StringRef(mask.name) == variant.mask)
        return Kernel::make(context, makeModule(mask, variant.columns), variant.options,
                            variant.ofGradient);
    return {};
  }

  static std::string describe(const Variant &variant, int64_t ctas) {
    return llvm::formatv("{0}, {1} columns, '{2}'{3}, {4} CTAs", variant.mask, variant.columns,
                         variant.options, variant.ofGradient ? ", gradient" : "", ctas);
  }

  mlir::MLIRContext context;
};

TEST_F(TileOrders, visitEachTileOnce) {
  std::set<std::string> seen; // kernels have orders in common
  for (const Variant &variant : kVariants) {
    std::vector<Kernel> kernels = make(variant);
    ASSERT_FALSE(kernels.empty()) << describe(variant, 0);
    for (const Kernel &kernel : kernels)
      for (int64_t ctas = 1; ctas <= kMostCtas; ++ctas) {
        std::vector<TileOrder> orders = TileOrder::make(kernel, ctas);
        for (TileOrder &order : orders)
          if (seen.insert(order.getText()).second)
            ASSERT_EQ(sweep(order, kMostLines, kMostTiles), "") << describe(variant, ctas) << "\n"
                                                                << order.getText();
      }
  }
}

/// The check finds constants that are one off. Those that it does not find give each tile once,
/// too: most choose between orders by how many tiles there are, the others are never more than
/// these counts.
TEST_F(TileOrders, findWrongConstants) {
  constexpr size_t kEvery = 5;
  constexpr int64_t kCtas = 5, kLines = 5, kTiles = 9;
  size_t found = 0, all = 0;
  std::string missed;
  std::set<std::string> seen;
  for (const Variant &variant : kVariants)
    for (const Kernel &kernel : make(variant)) {
      std::vector<TileOrder> orders = TileOrder::make(kernel, kCtas);
      std::vector<std::vector<TileOrder>> mutants = TileOrder::makeMutants(kernel, kCtas, kEvery);
      for (auto [order, ofOrder] : llvm::zip_equal(orders, mutants)) {
        if (!seen.insert(order.getText()).second)
          continue;
        for (TileOrder &mutant : ofOrder) {
          if (!seen.insert(mutant.getText()).second)
            continue; // no other arithmetic
          ++all;
          if (!sweep(mutant, kLines, kTiles).empty())
            ++found;
          else
            missed += describe(variant, kCtas) + ": " + mutant.getMistake() + "\n";
        }
      }
    }
  EXPECT_GT(all, 100u);
  EXPECT_GE(found * 10, all * 7) << missed;
  RecordProperty("found", int(found));
  RecordProperty("mistakes", int(all));
}

} // namespace
