// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the kernels in a PTX text take. See PtxKernels.h.

#include "PtxKernels.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace attn;

/// ".param .align 64 .b8 name[128]" or ".param .u64 .ptr .align 1 name".
static std::optional<PtxParameter> parseParameter(StringRef text) {
  SmallVector<StringRef> words;
  SplitString(text, words);
  if (words.size() < 3 || words.front() != ".param")
    return std::nullopt;
  // The type is the one word that ends in a width.
  unsigned bits = 0;
  for (StringRef word : ArrayRef(words).drop_front().drop_back()) {
    StringRef digits = word;
    if (digits.consume_front(".") && !digits.empty() &&
        StringRef("busf").contains(digits.front()) && !digits.drop_front().getAsInteger(10, bits))
      break;
  }
  if (bits == 0 || bits % 8)
    return std::nullopt;
  StringRef count = words.back();
  if (!count.consume_back("]"))
    return PtxParameter{bits / 8, false};
  uint64_t elements;
  if (count.split('[').second.getAsInteger(10, elements))
    return std::nullopt;
  return PtxParameter{elements * (bits / 8), true};
}

std::optional<SmallVector<PtxParameter>> attn::findPtxKernel(StringRef ptx, StringRef kernel) {
  std::string head = (".entry " + kernel + "(").str();
  size_t start = ptx.find(head);
  if (start == StringRef::npos)
    return std::nullopt;
  StringRef list = ptx.substr(start + head.size());
  list = list.take_front(list.find(')')).trim();
  SmallVector<PtxParameter> parameters;
  SmallVector<StringRef> texts;
  list.split(texts, ',', -1, /*KeepEmpty=*/false);
  for (StringRef text : texts) {
    auto parameter = parseParameter(text);
    if (!parameter)
      return std::nullopt;
    parameters.push_back(*parameter);
  }
  return parameters;
}
