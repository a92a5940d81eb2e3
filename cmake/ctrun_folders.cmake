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

# ctrun_see_only(TARGETS...): once all their sources are known.
function(ctrun_see_only)
    foreach(target ${ARGN})
        get_target_property(sources ${target} SOURCES)
        get_target_property(place ${target} SOURCE_DIR)
        foreach(source ${sources})
            if(source MATCHES "^\\$<")
                continue() # objects of another target
            endif()
            get_filename_component(source ${source} ABSOLUTE BASE_DIR ${place})
            get_filename_component(folder ${source} DIRECTORY)
            string(REPLACE "${PROJECT_BINARY_DIR}/" "" folder ${folder}) # a source that is made
            string(REPLACE "${PROJECT_SOURCE_DIR}/" "" folder ${folder})
            string(REPLACE "/" "." roots "${sees_${folder}}")
            list(TRANSFORM roots PREPEND ${headers}/)
            set_property(SOURCE ${source} TARGET_DIRECTORY ${target} APPEND PROPERTY INCLUDE_DIRECTORIES ${roots})
        endforeach()
    endforeach()
endfunction()
