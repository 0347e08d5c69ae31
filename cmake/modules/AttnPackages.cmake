# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
# Errors that name the packages of cmake/packages.txt.

# attn_fail_for_packages(WHAT IS MISSING)
function(attn_fail_for_packages missing)
  file(STRINGS ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../packages.txt packages REGEX "^[^#]")
  list(JOIN packages " " packages)
  message(FATAL_ERROR "${missing}. On Debian 12, as root:\n"
    "  apt-get install ${packages}\n"
    "docs/getting-started.md has other systems.")
endfunction()

# Compilers that a preset or the caller has chosen; project() looks for others.
function(attn_require_compilers)
  foreach(compiler IN ITEMS "${CMAKE_C_COMPILER}" "${CMAKE_CXX_COMPILER}")
    if(compiler)
      find_program(found NAMES ${compiler} NO_CACHE)
      if(NOT found)
        attn_fail_for_packages("expected the compiler ${compiler}, found none")
      endif()
      unset(found)
    endif()
  endforeach()
endfunction()
