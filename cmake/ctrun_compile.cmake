# How every target of ours is compiled. Warnings are always on; they are errors only where a
# preset says so, so that a newer compiler never breaks a user's build.
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
add_compile_options($<$<COMPILE_LANGUAGE:C>:-std=gnu17>) # CMAKE_C_STANDARD 17 needs CMake 3.21
add_compile_options($<$<COMPILE_LANGUAGE:C>:-fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=>) # no path of the build in programs, but for -g
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CTRUN_SANITIZE "" CACHE STRING "sanitizers, for example address,undefined")
option(CTRUN_FUZZ "build tests/fuzz with libFuzzer (clang)" OFF)

add_library(ctrun_compile INTERFACE)
target_compile_definitions(ctrun_compile INTERFACE _GNU_SOURCE)
target_compile_options(ctrun_compile INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wconversion -Wformat=2 -Wundef -Wvla
    -Wcast-qual -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes
    -Wold-style-definition>)
# No large object is on a stack: the SDK runs in threads of other programs. The largest is a path of
# the greatest length with every byte escaped. Other compilers and sanitizers have other frames.
set(CTRUN_FRAME_MAX_BYTES 32768)
if(CMAKE_C_COMPILER_ID STREQUAL "GNU" AND NOT CTRUN_SANITIZE)
    add_compile_options($<$<COMPILE_LANGUAGE:C>:-Wframe-larger-than=${CTRUN_FRAME_MAX_BYTES}>)
endif()
# Code that waits for most of its time is compiled for size. In a release only debuggers unwind its
# stack, and these have tables of their own.
set(CTRUN_SMALL $<$<NOT:$<CONFIG:Debug>>:-Os> $<$<CONFIG:Release>:-fno-asynchronous-unwind-tables>)
if(CTRUN_SANITIZE)
    add_compile_options(-fsanitize=${CTRUN_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${CTRUN_SANITIZE})
endif()
if(CTRUN_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
