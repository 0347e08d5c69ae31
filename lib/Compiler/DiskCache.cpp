// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Results of compilation in files. See DiskCache.h.

#include "attn/Compiler/DiskCache.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/SHA256.h"
#include "llvm/Support/raw_ostream.h"
#include <cstdlib>

using namespace llvm;
using namespace attn;

DiskCache DiskCache::standard() {
  if (const char *chosen = std::getenv("ATTNC_CACHE_DIR"))
    return DiskCache(chosen);
  SmallString<128> path;
  // XDG_CACHE_HOME, else ~/.cache.
  if (!sys::path::cache_directory(path))
    return DiskCache();
  sys::path::append(path, "attnc");
  return DiskCache(path);
}

static std::string hexDigest(ArrayRef<StringRef> parts) {
  SHA256 hash;
  for (StringRef part : parts) {
    uint8_t length[8];
    support::endian::write64le(length, part.size());
    hash.update(length);
    hash.update(part);
  }
  return toHex(hash.final(), /*LowerCase=*/true);
}

std::string DiskCache::makeKey(ArrayRef<StringRef> parts) {
  return hexDigest(parts);
}

/// A file starts with the digest of the rest.
static constexpr size_t digestLength = 64;

std::optional<std::string> DiskCache::load(StringRef key) const {
  if (directory.empty())
    return std::nullopt;
  SmallString<128> path(directory);
  sys::path::append(path, key);
  auto file = MemoryBuffer::getFile(path, /*IsText=*/false,
                                    /*RequiresNullTerminator=*/false);
  if (!file)
    return std::nullopt;
  StringRef text = (*file)->getBuffer();
  StringRef bytes = text.drop_front(std::min(digestLength, text.size()));
  if (text.take_front(digestLength) != hexDigest(bytes))
    return std::nullopt;
  return bytes.str();
}

void DiskCache::store(StringRef key, StringRef bytes) const {
  if (directory.empty() || sys::fs::create_directories(directory))
    return;
  SmallString<128> path(directory), temporary;
  sys::path::append(path, key);
  int descriptor;
  if (sys::fs::createUniqueFile(path + ".%%%%%%%%", descriptor, temporary))
    return;
  raw_fd_ostream stream(descriptor, /*shouldClose=*/true);
  stream << hexDigest(bytes) << bytes;
  stream.close();
  if (stream.has_error() || sys::fs::rename(temporary, path)) {
    stream.clear_error();
    sys::fs::remove(temporary);
  }
}
