// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Builders for the masks that have a name. They fill the mask region of
// attn.forward with plain index arithmetic; nothing downstream knows the names.

#ifndef ATTN_DIALECT_ATTN_IR_MASKS_H
#define ATTN_DIALECT_ATTN_IR_MASKS_H

#include "attn/Dialect/Attn/IR/Attn.h"
#include <optional>

namespace attn {

/// Values of a mask region: true where the pair of query i and key j is kept.
/// All indices and lengths are `index` values, all results i1.
class MaskBuilder {
public:
  MaskBuilder(mlir::OpBuilder &builder, mlir::Location loc, mlir::ValueRange indices)
      : builder(builder), loc(loc), batch(indices[0]), head(indices[1]), query(indices[2]),
        key(indices[3]) {}

  /// j <= i + offset. No offset aligns the diagonal to the top left; Sk - Sq
  /// aligns it to the bottom right (the last query sees the last key).
  mlir::Value causal(mlir::Value offset = {});
  /// i + offset - left <= j <= i + offset + right, both inclusive; a bound that
  /// is absent does not restrict.
  mlir::Value window(std::optional<int64_t> left, std::optional<int64_t> right,
                     mlir::Value offset = {});
  /// j < length, or j <= i: every query sees the prefix, and causally the rest.
  mlir::Value prefix(mlir::Value length);
  /// Query and key are of one document: integer tensors [batch, position].
  mlir::Value document(mlir::Value queryDocuments, mlir::Value keyDocuments);
  mlir::Value both(mlir::Value a, mlir::Value b);

private:
  mlir::Value shifted(mlir::Value offset, int64_t constant);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::Value batch, head, query, key;
};

/// Gives `op`, which has no mask, the mask that `body` builds from the region's
/// arguments for `captures`, which are appended to the op's captures.
void buildMask(ForwardOp op, mlir::ValueRange captures,
               llvm::function_ref<mlir::Value(MaskBuilder &, mlir::ValueRange)> body);

/// Sk - Sq of `op`, computed before it: the offset of bottom-right alignment.
mlir::Value buildBottomRightOffset(mlir::OpBuilder &builder, ForwardOp op);

} // namespace attn

#endif
