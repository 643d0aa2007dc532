# Tests of the emulation: one executable with those of each call, and probes, which do one thing and may die of it.
file(GLOB cudaemu_tests CONFIGURE_DEPENDS *_test.cpp)
add_executable(trireme_cudaemu_tests ../support/main.cpp ../support/process.cpp ${cudaemu_tests})
cudaemu_compile(trireme_cudaemu_tests samples/kernels.cu samples/language.cu)
target_link_libraries(trireme_cudaemu_tests PRIVATE trireme_catch)
target_compile_options(trireme_cudaemu_tests PRIVATE -O1)
target_compile_definitions(trireme_cudaemu_tests PRIVATE
  TRIREME_DEFAULT_EXE="" TRIREME_DEFAULT_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
  CUDAEMU_PROBE="$<TARGET_FILE_DIR:trireme_cudaemu_tests>/cudaemu_probe")

set(sanitizers none)
if(NOT TRIREME_SANITIZE)
  list(APPEND sanitizers asan tsan)
endif()
foreach(sanitizer IN LISTS sanitizers)
  string(REGEX REPLACE "^none$" "" sanitizer ${sanitizer})
  string(REGEX REPLACE "(.+)" "_\\1" suffix "${sanitizer}")
  add_executable(cudaemu_probe${suffix} samples/probe.cpp samples/probe_bugs.cpp samples/probe_ranks.cpp)
  cudaemu_compile(cudaemu_probe${suffix} SANITIZE "${sanitizer}" samples/kernels.cu samples/bugs.cu)
  target_compile_options(cudaemu_probe${suffix} PRIVATE -O1 -g1)
  add_dependencies(trireme_cudaemu_tests cudaemu_probe${suffix})
endforeach()

foreach(order IN ITEMS "forward lazy" "reverse others_first" "shuffled shuffled" "shuffled eager")
  string(REPLACE " " ";" pair ${order})
  list(GET pair 0 threads)
  list(GET pair 1 streams)
  set(name cudaemu.${threads}_${streams})
  register(NAME ${name} LABEL cudaemu COMMAND trireme_cudaemu_tests "[cudaemu]")
  set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT
    TRIREME_EMU_THREADS=${threads} TRIREME_EMU_STREAMS=${streams} TRIREME_EMU_DEVICES=4)
endforeach()
foreach(ranks IN ITEMS 1 2 4)
  register(NAME cudaemu.ranks.${ranks} LABEL cudaemu PROCESSORS ${ranks}
    COMMAND ${PROJECT_SOURCE_DIR}/tools/mpirun -n ${ranks} $<TARGET_FILE:trireme_cudaemu_tests> "[cudaemu-ranks]")
  set_property(TEST cudaemu.ranks.${ranks} APPEND PROPERTY ENVIRONMENT TRIREME_EMU_DEVICES=4)
endforeach()
if(NOT TRIREME_SANITIZE)  # else the probes are not all there
  foreach(area IN ITEMS bugs twins mutants faults)
    register(NAME cudaemu.${area} LABEL cudaemu COMMAND trireme_cudaemu_tests "[cudaemu-${area}]")
  endforeach()
endif()
register(NAME cudaemu.tags LABEL cudaemu PASS "No test cases matched" COMMAND trireme_cudaemu_tests
  "~[cudaemu]~[cudaemu-ranks]~[cudaemu-bugs]~[cudaemu-twins]~[cudaemu-mutants]~[cudaemu-faults]")
