# A CMake package of this build: `-Debb_DIR=BUILD/sdk` builds a program, or python/, on it, as it would on an installed
# copy. It has the laboratory too, which the Python package shows and which is not installed. Where the program and its
# tests link static libraries the shared ones are made of the same objects by another link (target `ebb_sdk`).
set(EBB_SDK ${CMAKE_BINARY_DIR}/sdk)
set(library ebb)
if(NOT EBB_SHARED)
  set(library ebb_sdk_library)
  ebb_add_shared_layers(${library})
  set_target_properties(${library} PROPERTIES
    EXPORT_NAME ebb EXCLUDE_FROM_ALL ON LIBRARY_OUTPUT_DIRECTORY ${EBB_SDK})
endif()
ebb_add_shared_library(ebb_sdk_lab ebb-lab $<TARGET_OBJECTS:ebb_lab>)
add_library(ebb::lab ALIAS ebb_sdk_lab)
set_target_properties(ebb_sdk_lab PROPERTIES EXPORT_NAME lab EXCLUDE_FROM_ALL ON LIBRARY_OUTPUT_DIRECTORY ${EBB_SDK})
target_include_directories(ebb_sdk_lab PUBLIC $<BUILD_INTERFACE:${EBB_ROOT}/lab/include>)
target_link_libraries(ebb_sdk_lab PUBLIC ${library} PRIVATE fmt::fmt PkgConfig::xxhash Threads::Threads)
export(TARGETS ${library} ebb_sdk_lab NAMESPACE ebb:: FILE ${EBB_SDK}/ebb-config.cmake)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${EBB_SDK}/ebb-config-version.cmake COMPATIBILITY SameMinorVersion)
add_custom_target(ebb_sdk DEPENDS ${library} ebb_sdk_lab)
