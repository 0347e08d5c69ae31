# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# The one place that knows how Debian's LLVM/MLIR packages must be linked.
# ATTN_LINK=static rewrites the exported MLIR archives, which name the shared
# libLLVM and libMLIR as dependencies, to name archives instead.
# ATTN_LINK=shared needs no rewriting and is the fallback when packages change.
option(ATTN_BUILD_TESTS "Build the unit tests and the lit suites" ON)
option(ATTN_PORTABLE "Link the compression libraries statically" OFF)
set(ATTN_LINK "static" CACHE STRING "How to link LLVM and MLIR: shared or static")
set_property(CACHE ATTN_LINK PROPERTY STRINGS shared static)

find_package(MLIR 22.1 QUIET CONFIG HINTS /usr/lib/llvm-22)
if(NOT MLIR_FOUND)
  set(found none)
  if(MLIR_CONSIDERED_VERSIONS)
    list(JOIN MLIR_CONSIDERED_VERSIONS ", " found)
  endif()
  attn_fail_for_packages(
    "expected LLVM and MLIR 22.1 with their CMake files (MLIR_DIR names them), found ${found}")
endif()
list(APPEND CMAKE_MODULE_PATH ${MLIR_CMAKE_DIR} ${LLVM_CMAKE_DIR})
set(LLVM_RUNTIME_OUTPUT_INTDIR ${PROJECT_BINARY_DIR}/bin)
set(LLVM_LIBRARY_OUTPUT_INTDIR ${PROJECT_BINARY_DIR}/lib)
set(MLIR_BINARY_DIR ${PROJECT_BINARY_DIR})
set(LLVM_BUILD_TOOLS ON)
include(TableGen)
include(AddLLVM)
include(AddMLIR)
include(HandleLLVMOptions)
separate_arguments(defs UNIX_COMMAND "${LLVM_DEFINITIONS}")
add_definitions(${defs})
# Debug builds keep our assertions; the packages' own are compiled out.

if(ATTN_LINK STREQUAL "shared")
  set(MLIR_LINK_MLIR_DYLIB ON)
  set(LLVM_LINK_LLVM_DYLIB ON)
elseif(ATTN_LINK STREQUAL "static")
  set(MLIR_LINK_MLIR_DYLIB OFF)
  set(LLVM_LINK_LLVM_DYLIB OFF)
  # The exported MLIR archives name the two shared libraries as dependencies;
  # point them at archives instead.
  llvm_map_components_to_libnames(llvm_archives
    support supportlsp core analysis ipo passes orcjit perfjitevents
    nvptxcodegen nvptxdesc nvptxinfo x86codegen x86desc x86info x86asmparser)
  add_library(AttnLLVMArchives INTERFACE)
  target_link_libraries(AttnLLVMArchives INTERFACE ${llvm_archives})
  set(real_execution_engine_deps
    MLIRBuiltinToLLVMIRTranslation MLIRExecutionEngineUtils MLIRLLVMDialect
    MLIRLLVMToLLVMIRTranslation MLIROpenMPToLLVMIRTranslation
    MLIRTargetLLVMIRExport)
  foreach(target IN LISTS MLIR_EXPORTED_TARGETS)
    if(NOT TARGET ${target})
      continue()
    endif()
    get_target_property(type ${target} TYPE)
    get_target_property(links ${target} INTERFACE_LINK_LIBRARIES)
    if(NOT type STREQUAL "STATIC_LIBRARY" OR NOT links)
      continue()
    endif()
    string(REGEX REPLACE "(^|;|LINK_ONLY:)LLVM(;|>|$)" "\\1AttnLLVMArchives\\2" links "${links}")
    list(REMOVE_ITEM links MLIR)
    if(target STREQUAL "MLIRExecutionEngine")
      list(APPEND links ${real_execution_engine_deps})
    endif()
    set_target_properties(${target} PROPERTIES INTERFACE_LINK_LIBRARIES "${links}")
  endforeach()
  if(ATTN_PORTABLE)
    # zlib and zstd come from archives. libz3 has none: nothing here calls it,
    # and --as-needed with --gc-sections drops it.
    get_target_property(links LLVMSupport INTERFACE_LINK_LIBRARIES)
    find_library(ATTN_ZLIB_ARCHIVE libz.a REQUIRED)
    list(TRANSFORM links REPLACE "^ZLIB::ZLIB$" "${ATTN_ZLIB_ARCHIVE}")
    list(TRANSFORM links REPLACE "^zstd::libzstd_shared$" "zstd::libzstd_static")
    set_target_properties(LLVMSupport PROPERTIES INTERFACE_LINK_LIBRARIES "${links}")
  endif()
else()
  message(FATAL_ERROR "ATTN_LINK must be shared or static, not '${ATTN_LINK}'")
endif()

# LLVM's and MLIR's headers, which take most of a file's time to compile, are read once.
# Files include what they need all the same: CMAKE_DISABLE_PRECOMPILE_HEADERS checks it.
add_library(AttnPrecompiled OBJECT ${PROJECT_SOURCE_DIR}/cmake/precompiled/Precompiled.cpp)
llvm_update_compile_flags(AttnPrecompiled)
target_precompile_headers(AttnPrecompiled PRIVATE ${PROJECT_SOURCE_DIR}/cmake/precompiled/Precompiled.h)

# attn_add_library(NAME sources... [MLIR_LIBS ...] [LINK_LIBS ...] [DEPENDS ...])
function(attn_add_library name)
  cmake_parse_arguments(ARG "" "" "MLIR_LIBS;LINK_LIBS;DEPENDS" ${ARGN})
  add_mlir_library(${name} ${ARG_UNPARSED_ARGUMENTS}
    DISABLE_INSTALL EXCLUDE_FROM_LIBMLIR
    DEPENDS ${ARG_DEPENDS} LINK_LIBS PUBLIC ${ARG_LINK_LIBS})
  mlir_target_link_libraries(${name} PUBLIC ${ARG_MLIR_LIBS})
  target_precompile_headers(${name} REUSE_FROM AttnPrecompiled)
endfunction()

function(attn_add_tool name)
  cmake_parse_arguments(ARG "" "" "MLIR_LIBS;LINK_LIBS;LLVM_COMPONENTS" ${ARGN})
  set(LLVM_LINK_COMPONENTS ${ARG_LLVM_COMPONENTS})
  add_llvm_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LINK_LIBS})
  mlir_target_link_libraries(${name} PRIVATE ${ARG_MLIR_LIBS})
  target_precompile_headers(${name} REUSE_FROM AttnPrecompiled)
endfunction()
