// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Control flow as jumps: scf, func, and the launch.

#include "Cluster.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"

using namespace mlir;
using namespace attn;
using namespace attn::interpreter;

static Step jump(Fiber &fiber, const Instruction &instruction) {
  fiber.next = instruction.target;
  return Step::Jumped;
}

static Step jumpIfFalse(Fiber &fiber, const Instruction &instruction) {
  if (fiber.integer(instruction, 0))
    return Step::Next;
  return jump(fiber, instruction);
}

//===----------------------------------------------------------------------===//
// scf
//===----------------------------------------------------------------------===//

/// Operands: induction variable, upper bound, step.
static Step testLoop(Fiber &fiber, const Instruction &instruction) {
  if (fiber.integer(instruction, 2) <= 0) {
    instruction.op->emitError() << "a loop's step is positive, got "
                                << fiber.integer(instruction, 2);
    return Step::Failed;
  }
  if (fiber.integer(instruction, 0) < fiber.integer(instruction, 1))
    return Step::Next;
  return jump(fiber, instruction);
}

static Step stepLoop(Fiber &fiber, const Instruction &instruction) {
  fiber.operand(instruction, 0).integer += fiber.integer(instruction, 2);
  return jump(fiber, instruction);
}

static LogicalResult translateFor(Translator &translator, Operation *op) {
  auto loop = cast<scf::ForOp>(op);
  SmallVector<mlir::Value> bounds = {loop.getInductionVar(), loop.getUpperBound(), loop.getStep()};
  translator.emitMoves(op, loop.getInitArgs(), loop.getRegionIterArgs());
  translator.emitMoves(op, loop.getLowerBound(), loop.getInductionVar());
  size_t head = translator.here();
  Instruction &test = translator.emitBare(op, testLoop);
  for (mlir::Value bound : bounds)
    test.operands.push_back(translator.slot(bound));
  if (failed(translator.translateBody(*loop.getBody())))
    return failure();
  translator.emitMoves(op, loop.getYieldedValues(), loop.getRegionIterArgs());
  Instruction &step = translator.emitBare(op, stepLoop);
  for (mlir::Value bound : bounds)
    step.operands.push_back(translator.slot(bound));
  step.target = head;
  translator.at(head).target = translator.here();
  translator.emitMoves(op, loop.getRegionIterArgs(), loop.getResults());
  return success();
}

static LogicalResult translateBranch(Translator &translator, Operation *op, Region &region) {
  if (region.empty())
    return success();
  if (failed(translator.translateBody(region.front())))
    return failure();
  translator.emitMoves(op, region.front().getTerminator()->getOperands(), op->getResults());
  return success();
}

static LogicalResult translateIf(Translator &translator, Operation *op) {
  auto branch = cast<scf::IfOp>(op);
  size_t test = translator.here();
  translator.emitBare(op, jumpIfFalse).operands = {translator.slot(branch.getCondition())};
  if (failed(translateBranch(translator, op, branch.getThenRegion())))
    return failure();
  size_t leave = translator.here();
  translator.emitBare(op, jump);
  translator.at(test).target = translator.here();
  if (failed(translateBranch(translator, op, branch.getElseRegion())))
    return failure();
  translator.at(leave).target = translator.here();
  return success();
}

static Step jumpIfOther(Fiber &fiber, const Instruction &instruction) {
  if (fiber.integer(instruction, 0) == instruction.numbers[0])
    return Step::Next;
  return jump(fiber, instruction);
}

static LogicalResult translateSwitch(Translator &translator, Operation *op) {
  auto choice = cast<scf::IndexSwitchOp>(op);
  SmallVector<size_t> leaves;
  for (auto [number, region] : llvm::zip(choice.getCases(), choice.getCaseRegions())) {
    size_t test = translator.here();
    Instruction &instruction = translator.emitBare(op, jumpIfOther);
    instruction.operands = {translator.slot(choice.getArg())};
    instruction.numbers = {number};
    if (failed(translateBranch(translator, op, region)))
      return failure();
    leaves.push_back(translator.here());
    translator.emitBare(op, jump);
    translator.at(test).target = translator.here();
  }
  if (failed(translateBranch(translator, op, choice.getDefaultRegion())))
    return failure();
  for (size_t leave : leaves)
    translator.at(leave).target = translator.here();
  return success();
}

static LogicalResult translateWhile(Translator &translator, Operation *op) {
  auto loop = cast<scf::WhileOp>(op);
  scf::ConditionOp condition = loop.getConditionOp();
  translator.emitMoves(op, loop.getInits(), loop.getBeforeArguments());
  size_t head = translator.here();
  if (failed(translator.translateBody(*loop.getBeforeBody())))
    return failure();
  size_t test = translator.here();
  translator.emitBare(op, jumpIfFalse).operands = {translator.slot(condition.getCondition())};
  translator.emitMoves(op, condition.getArgs(), loop.getAfterArguments());
  if (failed(translator.translateBody(*loop.getAfterBody())))
    return failure();
  translator.emitMoves(op, loop.getYieldOp().getOperands(), loop.getBeforeArguments());
  translator.emitBare(op, jump).target = head;
  translator.at(test).target = translator.here();
  translator.emitMoves(op, condition.getArgs(), loop.getResults());
  return success();
}

//===----------------------------------------------------------------------===//
// func
//===----------------------------------------------------------------------===//

/// A called function becomes part of its caller; each call has slots of its
/// own.
static LogicalResult translateCall(Translator &translator, Operation *op) {
  auto call = cast<func::CallOp>(op);
  auto callee = SymbolTable::lookupNearestSymbolFrom<func::FuncOp>(op, call.getCalleeAttr());
  if (!callee || callee.isDeclaration() || !callee.getBody().hasOneBlock())
    return op->emitError("the interpreter calls functions of one block");
  if (!translator.enter(callee))
    return op->emitError("the interpreter does not execute recursive calls");
  translator.emitMoves(op, call.getOperands(), callee.getArguments());
  if (failed(translator.translateBody(callee.getBody().front())))
    return failure();
  translator.emitMoves(op, callee.getBody().front().getTerminator()->getOperands(),
                       call.getResults());
  translator.leave(callee);
  return success();
}

//===----------------------------------------------------------------------===//
// gpu and hopper.roles
//===----------------------------------------------------------------------===//

static Step runLaunch(Fiber &fiber, const Instruction &instruction) {
  auto &info = *fiber.machine->program.launches[size_t(instruction.numbers[0])];
  int64_t grid[3], threads = 1;
  for (unsigned dim = 0; dim < 3; ++dim) {
    grid[dim] = fiber.integer(instruction, dim);
    threads *= fiber.integer(instruction, 3 + dim);
  }
  unsigned next = 6;
  int64_t ctas = 1;
  if (cast<gpu::LaunchOp>(instruction.op).hasClusterSize())
    ctas = fiber.integer(instruction, next++);
  std::optional<int64_t> memory;
  if (instruction.operands.size() > next)
    memory = fiber.integer(instruction, next);
  if (failed(fiber.machine->runLaunch(fiber, info, grid, ctas, threads, memory)))
    return Step::Failed;
  return jump(fiber, instruction);
}

static LogicalResult translateLaunch(Translator &translator, Operation *op) {
  auto launch = cast<gpu::LaunchOp>(op);
  if (translator.launch)
    return op->emitError("the interpreter does not execute a launch within a launch");
  if (launch.getAsyncToken() || !launch.getAsyncDependencies().empty() ||
      !launch.getBody().hasOneBlock() || !launch.getPrivateAttributions().empty())
    return op->emitError("the interpreter executes launches of one block, without private "
                         "attributions and asynchronous tokens");
  if (launch.hasClusterSize() && (!isConstantIntValue(launch.getClusterSizeY(), 1) ||
                                  !isConstantIntValue(launch.getClusterSizeZ(), 1)))
    return op->emitError("the interpreter executes clusters along x");
  auto &info = translator.program.launches.emplace_back(std::make_unique<LaunchInfo>());
  info->op = op;
  size_t start = translator.here();
  Instruction &instruction = translator.emitBare(op, runLaunch);
  for (mlir::Value size : {launch.getGridSizeX(), launch.getGridSizeY(), launch.getGridSizeZ(),
                           launch.getBlockSizeX(), launch.getBlockSizeY(), launch.getBlockSizeZ()})
    instruction.operands.push_back(translator.slot(size));
  if (launch.hasClusterSize())
    instruction.operands.push_back(translator.slot(launch.getClusterSizeX()));
  if (mlir::Value memory = launch.getDynamicSharedMemorySize())
    instruction.operands.push_back(translator.slot(memory));
  instruction.numbers = {int64_t(translator.program.launches.size()) - 1};
  SmallVector<gpu::KernelDim3> arguments = {launch.getBlockIds(), launch.getThreadIds(),
                                            launch.getGridSize(), launch.getBlockSize()};
  if (launch.hasClusterSize())
    arguments.append({*launch.getClusterIds(), *launch.getClusterSize()});
  for (gpu::KernelDim3 dims : arguments)
    for (mlir::Value value : {dims.x, dims.y, dims.z})
      info->arguments.push_back(translator.slot(value));
  info->ofThreads = !launch.getBody().getOps<hopper::ThreadsOp>().empty();
  for (BlockArgument memory : launch.getWorkgroupAttributions()) {
    auto type = cast<MemRefType>(memory.getType());
    Instruction shape;
    shape.op = op;
    if (!info->ofThreads || !type.hasStaticShape() || !type.getLayout().isIdentity())
      return op->emitError("the interpreter executes shared memory of static shape in launches of "
                           "threads (hopper.threads)");
    if (failed(setShape(shape, type)))
      return failure();
    info->shared.push_back(type);
    info->sharedKinds.push_back(shape.kind);
    info->sharedSlots.push_back(translator.slot(memory));
  }
  if (info->ofThreads)
    findWritten(translator, launch, *info);
  for (auto threads : launch.getBody().getOps<hopper::ThreadsOp>())
    info->occupancy = threads.getOccupancy().value_or(1);
  for (auto roles : launch.getBody().getOps<hopper::RolesOp>())
    info->occupancy = roles.getOccupancy();
  info->body = translator.here();
  translator.launch = info.get();
  if (failed(translator.translateBody(launch.getBody().front())))
    return failure();
  translator.launch = nullptr;
  translator.emitBare(launch.getBody().front().getTerminator(),
                      [](Fiber &, const Instruction &) { return Step::Finished; });
  translator.at(start).target = translator.here();
  return success();
}

/// The warpgroup's number in its CTA.
static int64_t getWarpgroup(const Fiber &fiber) {
  return fiber.warpgroup % fiber.cluster->countWarpgroups();
}

static Step readBlockId(Fiber &fiber, const Instruction &instruction) {
  fiber.result(instruction).integer = fiber.block[instruction.numbers[0]];
  return Step::Next;
}
static Step readGridSize(Fiber &fiber, const Instruction &instruction) {
  fiber.result(instruction).integer = fiber.cluster->grid[instruction.numbers[0]];
  return Step::Next;
}
static Step readRank(Fiber &fiber, const Instruction &instruction) {
  fiber.result(instruction).integer = instruction.numbers[0] ? 0 : fiber.rank;
  return Step::Next;
}
/// Of the warpgroup's first thread, in x.
static Step readThreadId(Fiber &fiber, const Instruction &instruction) {
  fiber.result(instruction).integer =
      instruction.numbers[0] ? 0 : getWarpgroup(fiber) * hopper::kThreadsPerWarpgroup;
  return Step::Next;
}

template <typename OpTy>
static void addDimension(Translator &translator, Instruction::Handler handler) {
  translator.add(OpTy::getOperationName(), [handler](Translator &translator, Operation *op) {
    if (!translator.launch)
      return LogicalResult(op->emitError("expects to be within a launch"));
    translator.emit(op, handler).numbers = {int64_t(cast<OpTy>(op).getDimension())};
    return success();
  });
}

/// Numbers: for each role, the end of its warpgroups and its first instruction.
static Step chooseRole(Fiber &fiber, const Instruction &instruction) {
  auto roles = cast<hopper::RolesOp>(instruction.op);
  if (roles.getNumAgents() != fiber.cluster->countWarpgroups()) {
    int64_t threads = roles.getNumAgents() - roles.getNumWarpgroups();
    fiber.cluster->error(instruction.op)
        << "the roles have " << roles.getNumWarpgroups() << " warpgroups, the launch has "
        << fiber.cluster->countWarpgroups() - threads;
    return Step::Failed;
  }
  int64_t first = 0, warpgroup = getWarpgroup(fiber);
  for (size_t role = 0; role < instruction.results.size(); ++role) {
    int64_t end = instruction.numbers[2 * role];
    if (warpgroup < end) {
      fiber[instruction.results[role]].integer = warpgroup - first;
      fiber.next = size_t(instruction.numbers[2 * role + 1]);
      return Step::Jumped;
    }
    first = end;
  }
  llvm_unreachable("a warpgroup without a role");
}

static LogicalResult translateRoles(Translator &translator, Operation *op) {
  auto roles = cast<hopper::RolesOp>(op);
  if (!translator.launch)
    return op->emitError("expects to be within a launch");
  if (translator.launch->roles) {
    InFlightDiagnostic diagnostic = op->emitError("a launch has one hopper.roles");
    diagnostic.attachNote(translator.launch->roles->getLoc()) << "the other one";
    return diagnostic;
  }
  translator.launch->roles = op;
  size_t choice = translator.here();
  translator.emitBare(op, chooseRole);
  SmallVector<size_t> leaves;
  int64_t end = 0;
  for (auto [role, region] : llvm::enumerate(roles.getBodies())) {
    unsigned argument = translator.slot(region.getArgument(0));
    end += roles.getAgents(role);
    translator.at(choice).results.push_back(argument);
    translator.at(choice).numbers.append({end, int64_t(translator.here())});
    if (failed(translator.translateBody(region.front())))
      return failure();
    leaves.push_back(translator.here());
    translator.emitBare(op, jump);
  }
  for (size_t leave : leaves)
    translator.at(leave).target = translator.here();
  return success();
}

void interpreter::registerControl(Translator &translator) {
  translator.add("scf.for", translateFor);
  translator.add("scf.if", translateIf);
  translator.add("scf.while", translateWhile);
  translator.add("scf.index_switch", translateSwitch);
  translator.add("func.call", translateCall);
  translator.add("gpu.launch", translateLaunch);
  translator.add("hopper.roles", translateRoles);
  addDimension<gpu::BlockIdOp>(translator, readBlockId);
  addDimension<gpu::ClusterBlockIdOp>(translator, readRank);
  addDimension<gpu::GridDimOp>(translator, readGridSize);
  addDimension<gpu::ThreadIdOp>(translator, readThreadId);
}
