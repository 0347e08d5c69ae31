// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The registry of targets. See Target.h.

#include "attn/Target/Target.h"
#include "llvm/ADT/StringExtras.h"
#include <map>
#include <mutex>

using namespace llvm;
using namespace attn::target;

LLVM_INSTANTIATE_REGISTRY(llvm::Registry<attn::target::Target>)

Program::~Program() = default;
Function::~Function() = default;
LoadedProgram::~LoadedProgram() = default;
Target::~Target() = default;

Expected<std::string> Target::getKey() const {
  return (description.name + " " + description.chip).str();
}

std::vector<const Target *> attn::target::getTargets() {
  static std::mutex mutex;
  static auto &known = *new std::map<std::string, std::unique_ptr<Target>>;
  std::lock_guard<std::mutex> lock(mutex);
  std::vector<const Target *> targets;
  for (const auto &entry : Registry<Target>::entries()) {
    std::unique_ptr<Target> &target = known[entry.getName().str()];
    if (!target)
      target = entry.instantiate();
    assert(target->getName() == entry.getName() && "registered by another name");
    targets.push_back(target.get());
  }
  return targets;
}

/// Where several are for GPUs, the device decides: of those that run on it, the latest one.
static const Target *findGpuTarget(ArrayRef<const Target *> targets) {
  SmallVector<const Target *> gpus;
  copy_if(targets, std::back_inserter(gpus), [](const Target *target) { return target->isGpu(); });
  const Target *latest = nullptr;
  for (const Target *target : gpus) {
    auto device = target->describeDevice();
    if (!device)
      consumeError(device.takeError());
    else if (!latest || target->getDescription().capability > latest->getDescription().capability)
      latest = target;
  }
  return latest || gpus.empty() ? latest : gpus.front();
}

Expected<const Target *> attn::target::getTarget(StringRef name, ArrayRef<StringRef> others) {
  std::vector<const Target *> targets = getTargets();
  for (const Target *target : targets)
    if (target->getName() == name)
      return target;
  const Target *gpu = findGpuTarget(targets);
  if (name == "cuda" && gpu)
    return gpu;
  SmallVector<StringRef> names(others);
  for (const Target *target : targets)
    names.push_back(target->getName());
  if (gpu)
    names.push_back("cuda");
  StringRef last = names.pop_back_val();
  return createStringError("expected target " + join(names, ", ") + " or " + last + ", got '" +
                           name + "'");
}
