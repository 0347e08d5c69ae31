# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
import attnc
import torch

IR = """
func.func @fill(%x: memref<?xf32, strided<[1]>>, %f: f32) {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c128 = arith.constant 128 : index
  %n = memref.dim %x, %c0 : memref<?xf32, strided<[1]>>
  gpu.launch blocks(%bx, %by, %bz) in (%gx = %n, %gy = %c1, %gz = %c1)
             threads(%tx, %ty, %tz) in (%dx = %c128, %dy = %c1, %dz = %c1) {
    memref.store %f, %x[%bx] : memref<?xf32, strided<[1]>>
    gpu.terminator
  }
  return
}
"""
fill = attnc.Executable(IR)
assert fill.arguments[0].shape == (-1,) and fill.arguments[1].shape is None and not fill.results
# The second call has the plan of the first, with other addresses and numbers.
fill(torch.Tensor(1 << 16, (5,), torch.float32), 2.0)
fill(torch.Tensor(1 << 17, (5,), torch.float32), 3.0)
assert len(fill._plans.known) == 1
cpu = torch.Tensor(1 << 16, (5,), torch.float32)
cpu.is_cuda, cpu.get_device = False, lambda: -1
for wrong in [(cpu, 2.0), (torch.Tensor(1 << 16, (5,), torch.uint8), 2.0), (2.0, 2.0), (cpu,)]:
    try:
        fill(*wrong)
    except attnc.Error as error:
        print(error)
    else:
        raise AssertionError(f"accepted {wrong}")
