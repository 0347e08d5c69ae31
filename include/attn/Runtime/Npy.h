// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// NumPy's .npy files, format versions 1 to 3 as NumPy's documentation of the
// format describes them: a magic string, a header that is a Python dictionary
// literal, and the elements. Only C order and little-endian numbers are read;
// everything else is refused with a message that names the file.

#ifndef ATTN_RUNTIME_NPY_H
#define ATTN_RUNTIME_NPY_H

#include "attn/Runtime/HostTensor.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/MemoryBuffer.h"
#include <memory>

namespace attn {

/// A file whose header has been read and whose size agrees with it.
class NpyFile {
public:
  static llvm::Expected<NpyFile> open(llvm::StringRef path);
  /// The same from bytes in memory; `name` stands in messages.
  static llvm::Expected<NpyFile> parse(std::unique_ptr<llvm::MemoryBuffer> buffer,
                                       llvm::StringRef name);

  llvm::ArrayRef<int64_t> getShape() const { return shape; }
  /// NumPy's name of the element type without the byte order: "f4", "i8", "b1".
  std::string getTypeName() const;

  /// Whether elements of the file can become ones of `kind`.
  llvm::Error checkKind(ElementKind kind) const;

  /// Copies the elements into `tensor`, which has the same shape. A float file
  /// fits any float type (rounded to nearest even), an integer file any integer
  /// type that holds its values; nothing else is converted.
  llvm::Error copyTo(const HostTensor &tensor) const;

private:
  llvm::Error parseHeader(llvm::StringRef header);
  llvm::Error fail(const llvm::Twine &message) const;

  std::string name;
  std::unique_ptr<llvm::MemoryBuffer> buffer;
  llvm::SmallVector<int64_t, 4> shape;
  char kind = 'f';
  unsigned size = 0;
  const char *data = nullptr;
};

/// Writes a version 1 file. bf16 has no NumPy type and is written as float32.
llvm::Error writeNpy(llvm::StringRef path, const HostTensor &tensor);

} // namespace attn

#endif
