// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Results of compilation in files, by a key that says all they depend on.

#ifndef ATTN_COMPILER_DISKCACHE_H
#define ATTN_COMPILER_DISKCACHE_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>
#include <utility>

namespace attn {

class DiskCache {
public:
  /// Keeps nothing.
  DiskCache() = default;
  explicit DiskCache(llvm::StringRef directory) : directory(directory) {}

  /// The directory that ATTNC_CACHE_DIR names, else attnc in XDG_CACHE_HOME or
  /// ~/.cache. An empty ATTNC_CACHE_DIR, or a machine without any of them, gives
  /// a cache that keeps nothing.
  static DiskCache standard();

  /// SHA-256 of the parts, each with its length, in hexadecimal.
  static std::string makeKey(llvm::ArrayRef<llvm::StringRef> parts);

  /// The bytes stored under a key; nothing where there are none, or where they
  /// are not those that were stored.
  std::optional<std::string> load(llvm::StringRef key) const;

  /// The right to make an entry, until it is destroyed. The system takes it from a
  /// process that ends; who waits too long goes on without, so that a process that
  /// hangs stops nobody. May be held by nobody (a directory without locks).
  class Lock {
  public:
    Lock() = default;
    Lock(Lock &&other) { *this = std::move(other); }
    Lock &operator=(Lock &&other);
    ~Lock() { release(); }
    bool isHeld() const { return descriptor >= 0; }

  private:
    friend class DiskCache;
    void release();
    int descriptor = -1;
    std::string path;
  };

  /// Waits for threads and processes that make the same entry.
  Lock lock(llvm::StringRef key) const;

  /// The bytes stored under a key. Where there are none, the right to make them is
  /// in `lock`: of all who ask at once, one makes them and the others wait.
  std::optional<std::string> loadOrLock(llvm::StringRef key, Lock &lock) const;

  /// A file appears whole or not at all, whoever else writes it. A cache that
  /// cannot be written is none.
  void store(llvm::StringRef key, llvm::StringRef bytes) const;

private:
  std::string directory;
};

} // namespace attn

#endif
