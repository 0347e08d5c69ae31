// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "attn/Utils/MatrixUnits.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/TargetParser/Host.h"
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

/// Asks the system to save the tile registers of this process's threads.
static bool requestTiles() {
#if defined(__linux__) && defined(__x86_64__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18; // ARCH_REQ_XCOMP_PERM
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

static llvm::StringRef findUnit() {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  if (!features.lookup("avx512f") || !features.lookup("avx512bw") || !features.lookup("avx512bf16"))
    return "none";
  bool hasTiles = features.lookup("amx-tile") && features.lookup("amx-bf16");
  return hasTiles && requestTiles() ? "amx" : "avx512_bf16";
}

llvm::StringRef attn::findHostMatrixUnit() {
  static const llvm::StringRef unit = findUnit();
  return unit;
}
