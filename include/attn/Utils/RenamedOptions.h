// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Options that had other names: an old one is an error that says the new one.

#ifndef ATTN_UTILS_RENAMEDOPTIONS_H
#define ATTN_UTILS_RENAMEDOPTIONS_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/Twine.h"
#include <string>

namespace attn {

/// A name, or a name with a value.
struct RenamedOption {
  llvm::StringLiteral old, now;
};
inline constexpr RenamedOption kRenamedOptions[] = {
    {"growth", "rescale-threshold"},
    {"keys", "block-n"},
    {"order=fixed", "deterministic=true"},
    {"order=ordered", "order=n_outer deterministic=true"},
    {"order=rows", "order=m_outer"},
    {"order=split", "order=split_kv"},
    {"order=stream", "order=n_outer"},
    {"output=pieces", "output=slabs"},
    {"polynomials", "exp2-emulation"},
    {"row-multiple", "block-m-multiple"},
    {"row-tile", "block-m"},
    {"rows", "block-m"},
    {"stream-tile", "block-n"},
    {"sum-keys", "block-n-dq"},
    {"sum-queries", "block-m-dkv"},
    {"turns", "semaphore"},
};

/// A message if one of the options, "name=value" with spaces or quotes in between, has an old name
/// or value; else empty.
inline std::string findRenamedOption(llvm::StringRef options) {
  llvm::SmallVector<llvm::StringRef> each;
  llvm::SplitString(options, each, " \t\n'\"{}");
  for (llvm::StringRef option : each)
    for (const RenamedOption &renamed : kRenamedOptions)
      if (option == renamed.old || option.split('=').first == renamed.old)
        return ("option '" + renamed.old + "' is now '" + renamed.now + "'").str();
  return "";
}

/// A pass, by its generated base class, that refuses old names of its options.
template <typename PassBase> struct WithRenamedOptions : PassBase {
  using PassBase::PassBase;

  mlir::LogicalResult
  initializeOptions(llvm::StringRef options,
                    llvm::function_ref<mlir::LogicalResult(const llvm::Twine &)> error) override {
    if (std::string message = findRenamedOption(options); !message.empty())
      return error(message);
    return PassBase::initializeOptions(options, error);
  }
};

} // namespace attn

#endif
