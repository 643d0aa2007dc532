# Finds oneDNN, version 2 or 3, as the target onednn::onednn. oneDNN's own CMake package is not used: Debian's asks for
# OpenCL's headers, which it does not install and nobody here needs.
find_path(ONEDNN_INCLUDE_DIR dnnl.hpp)
find_library(ONEDNN_LIBRARY dnnl)
mark_as_advanced(ONEDNN_INCLUDE_DIR ONEDNN_LIBRARY)

set(onednn_header)
foreach(folder IN ITEMS "" oneapi/dnnl/)
  if(EXISTS ${ONEDNN_INCLUDE_DIR}/${folder}dnnl_version.h)
    set(onednn_header ${ONEDNN_INCLUDE_DIR}/${folder}dnnl_version.h)
  endif()
endforeach()
if(onednn_header)
  file(STRINGS ${onednn_header} numbers REGEX "define DNNL_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
  list(TRANSFORM numbers REPLACE ".* " "")
  list(JOIN numbers "." onednn_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(onednn REQUIRED_VARS ONEDNN_LIBRARY ONEDNN_INCLUDE_DIR VERSION_VAR onednn_VERSION)
if(onednn_FOUND AND NOT TARGET onednn::onednn)
  add_library(onednn::onednn UNKNOWN IMPORTED)
  set_target_properties(onednn::onednn PROPERTIES
    IMPORTED_LOCATION ${ONEDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${ONEDNN_INCLUDE_DIR})
endif()
