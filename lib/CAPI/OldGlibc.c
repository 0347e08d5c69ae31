/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Functions that the archives of LLVM and of the compiler want of glibc 2.35 and 2.36,
 * by what glibc 2.34 has, so that a portable libattnc runs on systems that are older
 * than the one that built it. The linker takes these, and the version script hides
 * them. Whatever else is in use is older; scripts/build-wheel checks that. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>

#if __GLIBC_PREREQ(2, 35)

/* Of glibc 2.36. LLVM names temporary files by it. */
uint32_t arc4random(void) {
  uint32_t number;
  if (getentropy(&number, sizeof(number)))
    abort();
  return number;
}

typedef struct {
  uintptr_t pc;
  struct dl_find_object *result;
} Search;

static int visit(struct dl_phdr_info *info, size_t size, void *data) {
  Search *search = data;
  struct dl_find_object *result = search->result;
  uintptr_t start = 0, end = 0, frames = 0;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    uintptr_t at = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
    uintptr_t stop = at + info->dlpi_phdr[i].p_memsz;
    if (info->dlpi_phdr[i].p_type == PT_GNU_EH_FRAME)
      frames = at;
    else if (info->dlpi_phdr[i].p_type == PT_LOAD && search->pc >= at && search->pc < stop)
      start = at, end = stop;
  }
  if (!end)
    return 0;
  result->dlfo_flags = 0;
  result->dlfo_map_start = (void *)start;
  result->dlfo_map_end = (void *)end;
  result->dlfo_link_map = NULL;
  result->dlfo_eh_frame = (void *)frames;
  return frames ? 1 : -1;
}

/* Of glibc 2.35. libgcc's unwinder looks for the unwind tables of an address by it. */
int _dl_find_object(void *pc, struct dl_find_object *result) {
  Search search = {(uintptr_t)pc, result};
  return dl_iterate_phdr(visit, &search) == 1 ? 0 : -1;
}

#endif
