// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Options of passes that are words, and what the passes of the lowering share.

#ifndef ATTN_LIB_PIPELINES_HOPPEROPTIONS_H
#define ATTN_LIB_PIPELINES_HOPPEROPTIONS_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Target/SM80/SM80.h"
#include "attn/Target/SM90/SM90.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/MathExtras.h"

namespace attn {

/// An error at `op` where an option's value is none of `known`.
inline llvm::LogicalResult checkWord(mlir::Operation *op, llvm::StringRef option,
                                     llvm::StringRef value, llvm::ArrayRef<llvm::StringRef> known) {
  if (llvm::is_contained(known, value))
    return llvm::success();
  return op->emitError() << "schedule option '" << option << "' is one of "
                         << llvm::join(known, ", ") << "; got '" << value << "'";
}

/// What an option of true, false and auto says.
inline bool isOn(llvm::StringRef option, bool otherwise) {
  return option == "auto" ? otherwise : option == "true";
}

/// Whether rows lie in pages, where TMA does not look for them.
inline bool hasPages(mlir::Operation *root) {
  return root->walk([](PagesOp) { return mlir::WalkResult::interrupt(); }).wasInterrupted();
}

/// Whether there are tangents, whose kernels are of products of single warps.
inline bool hasTangents(mlir::Operation *root) {
  return root
      ->walk([](mlir::Operation *op) {
        return mlir::isa<JvpOp, BackwardJvpOp>(op) ? mlir::WalkResult::interrupt()
                                                   : mlir::WalkResult::advance();
      })
      .wasInterrupted();
}

/// The limits of a chip, or null where it is none that kernels are made for.
inline const target::Limits *findLimits(llvm::StringRef chip) {
  if (chip == target::sm90::kChip)
    return &target::sm90::kLimits;
  const target::sm80::Chip *found = target::sm80::findChip(chip);
  return found ? &found->limits : nullptr;
}

/// Whether an option of tiles is given, which row programs do not have.
template <typename Pass> bool asksForTiles(const Pass &pass) {
  return pass.blockM > 0 || pass.blockN > 0 || pass.stages > 0 || pass.order != "auto" ||
         pass.parts >= 0;
}

/// Checks the options of a schedule, each alone and together, of a pass that has them all.
template <typename Pass> llvm::LogicalResult checkOptions(mlir::Operation *op, const Pass &pass) {
  if (llvm::failed(
          checkWord(op, "order", pass.order, {"auto", "m_outer", "n_outer", "split_kv"})) ||
      llvm::failed(checkWord(op, "output", pass.output, {"auto", "own", "reuse", "slabs"})) ||
      llvm::failed(checkWord(op, "products", pass.products, {"auto", "wgmma", "mma"})) ||
      llvm::failed(checkWord(op, "precision", pass.precision, {"ieee", "tf32x3", "tf32"})))
    return llvm::failure();
  const target::Limits *limits = findLimits(pass.chip);
  if (!limits)
    return op->emitError()
           << "schedule option 'chip' is one of sm_80, sm_86, sm_89, sm_90a, sm_100, "
              "sm_120; got '"
           << pass.chip.getValue() << "'";
  if (pass.products == "wgmma" && pass.chip != target::sm90::kChip)
    return op->emitError() << "schedule option 'products=wgmma' needs 'chip=" << target::sm90::kChip
                           << "', got '" << pass.chip.getValue() << "'";
  const std::pair<llvm::StringRef, llvm::StringRef> switches[] = {
      {"overlap", pass.overlap},         {"pipeline", pass.pipeline},
      {"ping-pong", pass.pingPong},      {"trim", pass.trim},
      {"divide-sums", pass.divideSums},  {"fix-maxima", pass.fixMaxima},
      {"row-programs", pass.rowPrograms}};
  for (auto [name, value] : switches)
    if (llvm::failed(checkWord(op, name, value, {"auto", "true", "false"})))
      return llvm::failure();
  bool clashes =
      pass.order == "split_kv" ? pass.parts == 1 : pass.order != "auto" && pass.parts != 1;
  if (pass.parts < -1 || (pass.parts != -1 && clashes))
    return op->emitError() << "schedule option 'parts=" << int64_t(pass.parts)
                           << "' does not fit to 'order=" << pass.order.getValue()
                           << "': expected 0 or more parts, 1 unless the order is split_kv or auto";
  if (!llvm::isPowerOf2_64(pass.rowThreads) || pass.rowThreads < 8 || pass.rowThreads > 1024 ||
      !llvm::isPowerOf2_64(pass.rowCtas) || pass.rowCtas < 1 || pass.rowCtas > 8 ||
      pass.rowParts < 0)
    return op->emitError("schedule options 'row-threads' and 'row-ctas' are powers of two, 8 to "
                         "1024 and 1 to 8, and 'row-parts' is 0 or more");
  if (pass.rowPrograms == "true" && asksForTiles(pass))
    return op->emitError("schedule option 'row-programs=true' excludes those of tiles (block-m, "
                         "block-n, stages, order, parts)");
  if (pass.productColumns < 0 || pass.productColumns % 16)
    return op->emitError("schedule option 'product-columns' is a multiple of 16, got ")
           << int64_t(pass.productColumns);
  if (pass.productColumns != 0 && pass.products == "wgmma")
    return op->emitError("schedule option 'product-columns' is of products=mma");
  if (pass.fixMaxima == "true" && pass.cluster != 1)
    return op->emitError(
        "schedule option 'fix-maxima=true' excludes 'cluster': a CTA that ends alone leaves the "
        "others of its cluster without their part of the copies");
  if (pass.trim == "true" && pass.overlap == "true")
    return op->emitError("schedule option 'trim=true' excludes 'overlap=true': the assembler would "
                         "run the products one after the other");
  if (pass.trim == "true" && pass.pipeline == "false")
    return op->emitError(
        "schedule option 'trim=true' needs 'pipeline': what is left out is the product that runs "
        "beside the next iteration");
  return llvm::success();
}

} // namespace attn

#endif
