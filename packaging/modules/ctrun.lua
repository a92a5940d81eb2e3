-- A module file for Lmod: copy it to MODULEPATH/ctrun/VERSION.lua and name the prefix of
-- `cmake --install build --prefix PREFIX` here.
local prefix = "/opt/ctrun/0.1.0"
local lib = pathJoin(prefix, isDir(pathJoin(prefix, "lib64")) and "lib64" or "lib")

help([[ctrun: elastic launcher for distributed training; man ctrun, man ctrun-admin]])
whatis("Name: ctrun")
whatis("Version: 0.1.0")
whatis("Description: torchrun's command line, without Python in the control plane")
prepend_path("PATH", pathJoin(prefix, "bin"))
prepend_path("MANPATH", pathJoin(prefix, "share/man"))
prepend_path("PKG_CONFIG_PATH", pathJoin(lib, "pkgconfig"))
prepend_path("CMAKE_PREFIX_PATH", prefix)
prepend_path("LD_LIBRARY_PATH", lib)
