// A kernel that ptxas accepts with C7508: setmaxnreg without a block size.
gpu.binary @bad [#gpu.object<#nvvm.target<chip = "sm_90a">, assembly = ".version 8.6\0A.target sm_90a\0A.address_size 64\0A.visible .entry f() {\0A setmaxnreg.inc.sync.aligned.u32 240;\0A ret;\0A}\0A\00">]
