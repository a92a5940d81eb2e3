# SPDX-License-Identifier: Apache-2.0
# What a folder's sources can include: its own headers, and those of the folders that it may use (cmake/folders)
# and that these use in turn. Any other header of ours is not found by the compiler.
#
# A folder's headers are linked into headers/FOLDER.NAME/FOLDER/NAME/ of the build tree, one root a folder, so
# that "agent/link/link.h" is found where that root is searched, and nowhere else.
set(headers ${PROJECT_BINARY_DIR}/headers)
set(folders_file ${CMAKE_CURRENT_LIST_DIR}/folders)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${folders_file})
file(STRINGS ${folders_file} lines REGEX "^[^#]")
set(known "")
foreach(line ${lines})
    string(REGEX REPLACE " +" ";" words "${line}")
    list(POP_FRONT words folder)
    string(REGEX REPLACE "/.*" "" top ${folder})
    list(APPEND known ${folder})
    set(sees_${folder} ${folder})
    foreach(word ${words})
        if("${top}/${word}" IN_LIST known)
            set(word ${top}/${word})
        endif()
        list(APPEND sees_${folder} ${sees_${word}})
    endforeach()
    list(REMOVE_DUPLICATES sees_${folder})
    string(REPLACE "/" "." root ${folder})
    file(GLOB names RELATIVE ${PROJECT_SOURCE_DIR} CONFIGURE_DEPENDS
         ${PROJECT_SOURCE_DIR}/${folder}/*.h ${PROJECT_SOURCE_DIR}/${folder}/*.cuh)
    file(MAKE_DIRECTORY ${headers}/${root}/${folder})
    foreach(name ${names})
        file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${name} ${headers}/${root}/${name} SYMBOLIC)
    endforeach()
endforeach()

# ctrun_see_only(TARGET): its sources, all of this folder, find only those headers.
function(ctrun_see_only target)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    string(REPLACE "/" "." roots "${sees_${folder}}")
    list(TRANSFORM roots PREPEND ${headers}/)
    target_include_directories(${target} PRIVATE ${roots})
endfunction()

# ctrun_folder(WHOLE SOURCES...): makes an object library of these sources of this folder and adds its objects to the
# archive or program WHOLE. It is compiled like WHOLE, whose libraries and options must be set before. Its name has the
# folder and WHOLE, because parts of one folder may go into several: agent.link.ctrun_agent.
function(ctrun_folder whole)
    file(RELATIVE_PATH folder ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
    string(REPLACE "/" "." objects ${folder}.${whole})
    add_library(${objects} OBJECT ${ARGN})
    foreach(property COMPILE_DEFINITIONS COMPILE_OPTIONS LINK_LIBRARIES)
        get_target_property(value ${whole} ${property})
        if(value)
            set_property(TARGET ${objects} PROPERTY ${property} ${value})
        endif()
    endforeach()
    ctrun_see_only(${objects})
    target_sources(${whole} PRIVATE $<TARGET_OBJECTS:${objects}>)
endfunction()
