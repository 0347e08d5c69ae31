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
#include "llvm/Support/xxhash.h"
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <fcntl.h>
#include <sys/file.h>
#include <thread>
#include <unistd.h>

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

std::string DiskCache::makeKey(ArrayRef<StringRef> parts) {
  SHA256 hash;
  for (StringRef part : parts) {
    uint8_t length[8];
    support::endian::write64le(length, part.size());
    hash.update(length);
    hash.update(part);
  }
  return toHex(hash.final(), /*LowerCase=*/true);
}

/// A file starts with a checksum of the rest: files may be cut or damaged. (SHA-256 took a
/// millisecond of four.)
static constexpr size_t checksumLength = 32;

static std::string makeChecksum(StringRef bytes) {
  XXH128_hash_t hash = xxh3_128bits(arrayRefFromStringRef(bytes));
  uint8_t words[16];
  support::endian::write64le(words, hash.low64);
  support::endian::write64le(words + 8, hash.high64);
  return toHex(words, /*LowerCase=*/true);
}

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
  StringRef bytes = text.drop_front(std::min(checksumLength, text.size()));
  if (text.take_front(checksumLength) != makeChecksum(bytes))
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
  stream << makeChecksum(bytes) << bytes;
  stream.close();
  if (stream.has_error() || sys::fs::rename(temporary, path)) {
    stream.clear_error();
    sys::fs::remove(temporary);
  }
}

//===----------------------------------------------------------------------===//
// Locks
//===----------------------------------------------------------------------===//

DiskCache::Lock &DiskCache::Lock::operator=(Lock &&other) {
  if (this == &other)
    return *this;
  release();
  descriptor = std::exchange(other.descriptor, -1);
  path = std::move(other.path);
  return *this;
}

void DiskCache::Lock::release() {
  if (descriptor < 0)
    return;
  // Who waits for this file gets it; who comes later finds the entry, or makes
  // another file.
  sys::fs::remove(path);
  // By hand: a forked process may have the file open, too.
  ::flock(descriptor, LOCK_UN);
  ::close(descriptor);
  descriptor = -1;
}

DiskCache::Lock DiskCache::lock(StringRef key) const {
  // Beyond what compiling takes.
  constexpr std::chrono::seconds patience(60);
  Lock result;
  if (directory.empty() || sys::fs::create_directories(directory))
    return result;
  SmallString<128> path(directory);
  sys::path::append(path, key);
  result.path = (path + ".lock").str();
  // Not fcntl, whose locks threads of a process share.
  int descriptor = ::open(result.path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (descriptor < 0)
    return result;
  auto deadline = std::chrono::steady_clock::now() + patience;
  while (::flock(descriptor, LOCK_EX | LOCK_NB)) {
    bool isTaken = errno == EWOULDBLOCK || errno == EINTR;
    if (!isTaken || std::chrono::steady_clock::now() > deadline) {
      ::close(descriptor);
      return result;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  result.descriptor = descriptor;
  return result;
}

std::optional<std::string> DiskCache::loadOrLock(StringRef key, Lock &lock) const {
  if (auto bytes = load(key))
    return bytes;
  lock = this->lock(key);
  return lock.isHeld() ? load(key) : std::nullopt;
}
