# The CUDA backend: libtrireme_cuda.so, which the program opens when it is asked for a GPU. CUDA's libraries are linked to
# it alone, so that the program starts as fast, and on machines without them, as if there were no backend.
file(GLOB trireme_cuda_sources CONFIGURE_DEPENDS src/tensor/cuda/*.cpp src/ops/cuda/*.cpp src/ops/cuda/*.cu)
list(REMOVE_ITEM trireme_cuda_sources ${PROJECT_SOURCE_DIR}/src/ops/cuda/plugin.cpp)  # the rest is also built for the emulation
file(GLOB trireme_nccl_sources CONFIGURE_DEPENDS src/comm/nccl/*.cpp)
list(REMOVE_ITEM trireme_nccl_sources ${PROJECT_SOURCE_DIR}/src/comm/nccl/plugin.cpp)

# Program and plugin agree on these headers, or do not work together: classes cross the border between them.
file(GLOB interface_headers CONFIGURE_DEPENDS include/trireme/base/*.hpp include/trireme/tensor/*.hpp
  include/trireme/ops/*.hpp include/trireme/comm/communicator.hpp src/comm/nccl_group.hpp)
set(interface "${CMAKE_CXX_COMPILER_VERSION}")
foreach(header IN LISTS interface_headers)
  file(SHA256 ${header} digest)
  string(APPEND interface ${digest})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${header})
endforeach()
string(SHA256 interface "${interface}")
string(SUBSTRING ${interface} 0 16 interface)
set_property(SOURCE src/tensor/cuda_plugin.cpp src/ops/cuda/plugin.cpp
  PROPERTY COMPILE_DEFINITIONS "TRIREME_INTERFACE=\"${PROJECT_VERSION}-${interface}\"")

if(NOT TRIREME_CUDA)
  return()
endif()
include(CheckLanguage)
check_language(CUDA)
if(CMAKE_CUDA_COMPILER)
  find_package(CUDAToolkit QUIET)
endif()
if(NOT CMAKE_CUDA_COMPILER OR NOT TARGET CUDA::cublasLt)
  if(TRIREME_CUDA STREQUAL "AUTO")
    message(STATUS "No CUDA toolkit (nvcc and cuBLASLt): built without the CUDA backend")
    return()
  endif()
  message(FATAL_ERROR "TRIREME_CUDA=${TRIREME_CUDA}: nvcc or cuBLASLt was not found; expected a CUDA toolkit on the PATH, or "
    "TRIREME_CUDA=OFF")
endif()
set(CMAKE_CUDA_ARCHITECTURES ${TRIREME_CUDA_ARCHITECTURES})
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()
enable_language(CUDA)
if(CMAKE_VERSION VERSION_LESS 3.26)  # it does not know that nvcc knows C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()

add_library(trireme_cuda MODULE ${trireme_cuda_sources} src/ops/cuda/plugin.cpp
  src/base/parse.cpp src/ops/activation.cpp src/tensor/buffer.cpp src/tensor/shape.cpp)
set_target_properties(trireme_cuda PROPERTIES
  CUDA_STANDARD 20 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Static
  CXX_VISIBILITY_PRESET hidden CUDA_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
  LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:trireme>)
target_include_directories(trireme_cuda PRIVATE include src)
# A kernel that spills registers may have to be cut differently; .ci/run takes these warnings for errors.
target_compile_options(trireme_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:
  --expt-relaxed-constexpr --compiler-options=-Wall,-Wextra -Xptxas=--warn-on-spills,--warn-on-local-memory-usage>)
# Random numbers have the bits that the CPU gives them.
set_property(SOURCE src/ops/cuda/random.cu PROPERTY COMPILE_OPTIONS -fmad=false)
target_link_libraries(trireme_cuda PRIVATE trireme_flags CUDA::cudart_static CUDA::cublasLt fmt::fmt)
# NCCL is there or not, as the machine has it.
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)
if(NCCL_INCLUDE_DIR AND NCCL_LIBRARY)
  target_sources(trireme_cuda PRIVATE ${trireme_nccl_sources} src/comm/nccl/plugin.cpp)
  target_include_directories(trireme_cuda SYSTEM PRIVATE ${NCCL_INCLUDE_DIR})
  target_link_libraries(trireme_cuda PRIVATE ${NCCL_LIBRARY})
  set(trireme_nccl_built "")  # "2.27.3", for --version
  foreach(part IN ITEMS MAJOR MINOR PATCH)
    file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h line REGEX "^#define NCCL_${part} [0-9]+")
    string(REGEX REPLACE ".* ([0-9]+).*" "\\1" number "${line}")
    list(APPEND trireme_nccl_built ${number})
  endforeach()
  list(JOIN trireme_nccl_built "." trireme_nccl_built)
endif()
target_link_options(trireme_cuda PRIVATE -Wl,-z,defs)  # a symbol that only the program has would be missing when it is opened
add_dependencies(trireme trireme_cuda)
install(TARGETS trireme_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
list(TRANSFORM TRIREME_CUDA_ARCHITECTURES PREPEND sm_ OUTPUT_VARIABLE kinds)
list(JOIN kinds ", " kinds)
set(trireme_cuda_built "${CMAKE_CUDA_COMPILER_VERSION} for ${kinds}")  # for --version
