# How every target of ours is compiled. Warnings are always on; they are errors only where a
# preset says so, so that a newer compiler never breaks a user's build.
if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_C_STANDARD 17)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

set(CTRUN_SANITIZE "" CACHE STRING "sanitizers, for example address,undefined")
option(CTRUN_FUZZ "build tests/fuzz with libFuzzer (clang)" OFF)

add_library(ctrun_compile INTERFACE)
target_compile_definitions(ctrun_compile INTERFACE _GNU_SOURCE)
target_include_directories(ctrun_compile INTERFACE ${PROJECT_SOURCE_DIR})
target_compile_options(ctrun_compile INTERFACE
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Wshadow -Wconversion -Wformat=2 -Wundef -Wvla
    -Wcast-qual -Wwrite-strings -Wstrict-prototypes -Wmissing-prototypes
    -Wold-style-definition>)
# Code that waits for most of its time: its size is what a node pays for.
set(CTRUN_SMALL $<$<NOT:$<CONFIG:Debug>>:-Os>)
if(CTRUN_SANITIZE)
    add_compile_options(-fsanitize=${CTRUN_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${CTRUN_SANITIZE})
endif()
if(CTRUN_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
