# Finds MPI (its C interface) and an HDF5 that was built for the same MPI.
# Gives MPI::MPI_C, trireme_hdf5, TRIREME_MPI_FLAVOUR (openmpi or mpich) and MPIEXEC_EXECUTABLE.
include(CheckCXXSourceCompiles)

if(NOT TRIREME_MPI MATCHES "^(auto|openmpi|mpich)$")
  message(FATAL_ERROR "TRIREME_MPI is \"${TRIREME_MPI}\"; expected auto, openmpi or mpich")
endif()

# Debian installs both side by side and tells the wrappers apart by a suffix.
if(NOT TRIREME_MPI STREQUAL auto)
  find_program(TRIREME_MPICC mpicc.${TRIREME_MPI})
  if(TRIREME_MPICC AND NOT MPI_C_COMPILER)
    set(MPI_C_COMPILER ${TRIREME_MPICC} CACHE FILEPATH "MPI wrapper of the C compiler")
  endif()
endif()
find_package(MPI REQUIRED COMPONENTS C)
# Without these, mpi.h brings the old C++ interface, whose library is not linked.
target_compile_definitions(MPI::MPI_C INTERFACE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)

function(trireme_try name)
  cmake_parse_arguments(PARSE_ARGV 1 try "" "CODE" "LIBRARIES")
  set(CMAKE_REQUIRED_LIBRARIES ${try_LIBRARIES})
  set(CMAKE_REQUIRED_QUIET ON)
  unset(${name} CACHE)  # asked again at each configuration, since what is installed may have changed
  check_cxx_source_compiles("${try_CODE}\nint main() { return 0; }" ${name})
endfunction()

# Everything that is not OpenMPI is MPICH or one of its descendants (Cray, Intel, MVAPICH), with its ABI and launcher.
trireme_try(TRIREME_MPI_IS_OPENMPI LIBRARIES MPI::MPI_C CODE "#include <mpi.h>\n#ifndef OPEN_MPI\n#error\n#endif")
if(TRIREME_MPI_IS_OPENMPI)
  set(TRIREME_MPI_FLAVOUR openmpi)
else()
  set(TRIREME_MPI_FLAVOUR mpich)
endif()
if(NOT TRIREME_MPI MATCHES "^(auto|${TRIREME_MPI_FLAVOUR})$")
  message(FATAL_ERROR "TRIREME_MPI=${TRIREME_MPI}, but the MPI found is ${TRIREME_MPI_FLAVOUR} (${MPI_C_COMPILER})."
    " Install ${TRIREME_MPI} (Debian: tools/setup --mpich), or name its wrapper with -DMPI_C_COMPILER=...")
endif()

# FindMPI knows the launchers without a suffix only, which may belong to the other MPI.
if(TRIREME_MPI_FLAVOUR STREQUAL openmpi)
  find_program(launcher NAMES mpirun.openmpi mpirun HINTS ${MPI_HOME} NO_CACHE)
else()
  find_program(launcher NAMES mpiexec.hydra mpiexec.mpich mpiexec HINTS ${MPI_HOME} NO_CACHE)
endif()
if(launcher)
  set(MPIEXEC_EXECUTABLE ${launcher})
endif()

add_library(trireme_hdf5 INTERFACE IMPORTED)  # imported, so that the check below sees what it brings
pkg_check_modules(hdf5_${TRIREME_MPI_FLAVOUR} QUIET IMPORTED_TARGET hdf5-${TRIREME_MPI_FLAVOUR})
if(hdf5_${TRIREME_MPI_FLAVOUR}_FOUND)
  target_link_libraries(trireme_hdf5 INTERFACE PkgConfig::hdf5_${TRIREME_MPI_FLAVOUR})
else()
  set(HDF5_PREFER_PARALLEL ON)
  find_package(HDF5 COMPONENTS C)
  if(HDF5_FOUND)
    target_include_directories(trireme_hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE_DIRS})
    target_link_libraries(trireme_hdf5 INTERFACE ${HDF5_LIBRARIES})
    target_compile_definitions(trireme_hdf5 INTERFACE ${HDF5_DEFINITIONS})
  endif()
endif()
trireme_try(TRIREME_HDF5_IS_PARALLEL LIBRARIES trireme_hdf5 MPI::MPI_C
  CODE "#include <hdf5.h>\n#ifndef H5_HAVE_PARALLEL\n#error\n#endif")
if(NOT TRIREME_HDF5_IS_PARALLEL)
  message(FATAL_ERROR "No parallel HDF5 for ${TRIREME_MPI_FLAVOUR} was found: one built without MPI will not do."
    " Debian: libhdf5-${TRIREME_MPI_FLAVOUR}-dev (tools/setup installs it); Spack: hdf5 +mpi; elsewhere set HDF5_ROOT.")
endif()

message(STATUS "MPI ${MPI_C_VERSION} (${TRIREME_MPI_FLAVOUR}), started by ${MPIEXEC_EXECUTABLE}")
