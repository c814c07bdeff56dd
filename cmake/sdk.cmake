# The shared libraries of a build whose program and tests link static ones, and a CMake package of them:
# `-Debb_DIR=BUILD/sdk` builds a program, or python/, on this build, as it would on an installed copy. Same objects,
# another link; built when asked for (target `ebb_sdk`).
set(EBB_SDK ${CMAKE_BINARY_DIR}/sdk)
ebb_add_shared_layers(ebb_sdk_library)
set_target_properties(ebb_sdk_library PROPERTIES EXPORT_NAME ebb)
ebb_add_shared_library(ebb_sdk_lab ebb-lab $<TARGET_OBJECTS:ebb_lab>)
set_target_properties(ebb_sdk_lab PROPERTIES EXPORT_NAME lab)
target_link_libraries(ebb_sdk_lab PUBLIC ebb_sdk_library PRIVATE fmt::fmt PkgConfig::xxhash Threads::Threads)
set_target_properties(ebb_sdk_library ebb_sdk_lab PROPERTIES
  EXCLUDE_FROM_ALL ON LIBRARY_OUTPUT_DIRECTORY ${EBB_SDK})
export(TARGETS ebb_sdk_library ebb_sdk_lab NAMESPACE ebb:: FILE ${EBB_SDK}/ebb-config.cmake)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${EBB_SDK}/ebb-config-version.cmake COMPATIBILITY SameMinorVersion)
add_custom_target(ebb_sdk DEPENDS ebb_sdk_library ebb_sdk_lab)
