// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What lib/CAPI/OldGlibc.c puts in the place of glibc's functions, beside these.
// Linked with the static libgcc, whose unwinder calls them, as the portable libattnc is.

#include <cstdio>
#include <dlfcn.h>
#include <set>
#include <stdexcept>

extern "C" unsigned arc4random();

static void check(const char *what, bool holds) {
  std::printf("%s: %s\n", what, holds ? "ok" : "wrong");
}

/// Throws past frames that have something to destroy.
static int __attribute__((noinline)) descend(int depth, int &destroyed) {
  struct Count {
    int &count;
    ~Count() { ++count; }
  } count{destroyed};
  if (depth == 0)
    throw std::runtime_error("thrown");
  return descend(depth - 1, destroyed) + 1;
}

using FindObject = int(void *, dl_find_object *);

/// Whether both find the same unwind tables, or none.
static bool agree(FindObject *other, void *pc) {
  dl_find_object mine, theirs;
  int status = _dl_find_object(pc, &mine);
  if (status != other(pc, &theirs))
    return false;
  return status != 0 || mine.dlfo_eh_frame == theirs.dlfo_eh_frame;
}

int main() {
  int destroyed = 0;
  try {
    descend(5, destroyed);
  } catch (const std::runtime_error &error) {
    check("an exception", destroyed == 6);
  }
  std::set<unsigned> numbers;
  for (int i = 0; i < 100; ++i)
    numbers.insert(arc4random());
  check("random numbers", numbers.size() > 90);
  auto *other = reinterpret_cast<FindObject *>(dlsym(RTLD_NEXT, "_dl_find_object"));
  check("another function", other && other != &_dl_find_object);
  void *libc = dlsym(RTLD_NEXT, "puts"), *nothing = nullptr, *stack = &libc;
  check("in the program", agree(other, reinterpret_cast<void *>(&main)));
  check("in a library", agree(other, libc));
  check("outside", agree(other, nothing) && agree(other, stack));
}
