def SomeRight : Pass<"some-right", "::mlir::func::FuncOp"> {
  let description = [{
    Does something.

    Needed by: all kernels.
  }];
}

def SomeBare : Pass<"some-bare"> {
  let summary = "Needed by: all kernels.";
}

def SomeSilent : Pass<"some-silent"> {
  let description = [{
    Does something.
  }];
}

def SomeEmpty : Pass<"some-empty"> {
  let description = [{
    Does something.

    Needed by: .
  }];
}

def SomeEarly : Pass<"some-early"> {
  let description = [{
    Needed by: all kernels.

    Does something.
  }];
}

def SomeJoined : Pass<"some-joined"> {
  let description = [{
    Does something.
    Needed by: all kernels.
  }];
}
