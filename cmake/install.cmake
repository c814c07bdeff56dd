# What `cmake --install` brings: the programs with their manual pages and completions, the library, its
# headers, a CMake package, a file for pkg-config; and Debian packages of them (`cpack -G DEB`).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# Folders are 0755 whatever the umask. These say it where the umask takes less away. Where it takes more,
# `make install` sets another one, and packages are mended below.
set(CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE
  GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS ${CMAKE_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS})

set_target_properties(ebb_cli ebb_lab_cli ebb_bench_cli PROPERTIES
  INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
install(TARGETS ebb_cli COMPONENT program)
install(TARGETS ebb_lab_cli ebb_bench_cli COMPONENT laboratory)
install(TARGETS ebb EXPORT ebb-targets
  LIBRARY COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY ${EBB_ROOT}/include/ebb TYPE INCLUDE COMPONENT development
  FILES_MATCHING PATTERN *.h)
install(FILES ${CMAKE_BINARY_DIR}/generated/ebb/version.h
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/ebb COMPONENT development)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/ebb)
# The library needs no other package: its target is the package.
install(EXPORT ebb-targets NAMESPACE ebb:: FILE ebb-config.cmake DESTINATION ${package_folder}
  COMPONENT development)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/ebb-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/ebb-config-version.cmake
  DESTINATION ${package_folder} COMPONENT development)
file(RELATIVE_PATH to_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/ebb.pc @ONLY CONTENT [=[
prefix=${pcfiledir}/@to_prefix@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@

Name: ebb
Description: @PROJECT_DESCRIPTION@
Version: @PROJECT_VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -lebb
]=])
install(FILES ${CMAKE_BINARY_DIR}/ebb.pc
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# ebb_printed(target form name): what `docs --as FORM` of a program prints, in the file `name` of the build folder.
set(printed)
function(ebb_printed target form name)
  set(file ${CMAKE_BINARY_DIR}/printed/${name})
  add_custom_command(OUTPUT ${file} COMMAND ${target} docs --as ${form} > ${file} DEPENDS ${target})
  set(printed ${printed} ${file} PARENT_SCOPE)
endfunction()
file(MAKE_DIRECTORY ${CMAKE_BINARY_DIR}/printed)
set(programs ebb ebb-lab ebb-bench)
foreach(program IN LISTS programs)
  string(REPLACE - _ target ${program}_cli)
  ebb_printed(${target} man ${program}.1)
  ebb_printed(${target} bash ${program})
  ebb_printed(${target} zsh _${program})
  ebb_printed(${target} fish ${program}.fish)
endforeach()
ebb_printed(ebb_cli config serve.toml)
add_custom_target(ebb_printed ALL DEPENDS ${printed})
# ebb_compressed(source name): the file `name`, beside what is printed.
find_program(EBB_GZIP gzip REQUIRED)
function(ebb_compressed source name)
  set(file ${CMAKE_BINARY_DIR}/printed/${name})
  add_custom_command(OUTPUT ${file} COMMAND ${EBB_GZIP} -9nc ${source} > ${file} DEPENDS ${source})
  add_custom_target(ebb_${name} ALL DEPENDS ${file})
endfunction()
foreach(program IN LISTS programs)
  set(component laboratory)
  if(program STREQUAL ebb)
    set(component program)
  endif()
  set(page ${CMAKE_BINARY_DIR}/printed/${program})
  ebb_compressed(${page}.1 ${program}.1.gz)
  add_dependencies(ebb_${program}.1.gz ebb_printed)
  install(FILES ${page}.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component})
  install(FILES ${page} DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT ${component})
  # Where zsh looks in /usr/local, and in /usr.
  foreach(folder site-functions vendor-completions)
    install(FILES ${CMAKE_BINARY_DIR}/printed/_${program}
      DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/${folder} COMPONENT ${component})
  endforeach()
  install(FILES ${page}.fish
    DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d COMPONENT ${component})
endforeach()

# Debian's packages: each brings its licence and what has changed.
set(CPACK_PACKAGE_NAME ebb)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "The ebb authors <ebb@localhost>" CACHE STRING "Who maintains Debian's packages")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_COMPONENTS_ALL program laboratory library development)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_BINARY_DIR})
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_NAME ebb)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_RECOMMENDS "libcurl4 | libcurl4t64, ca-certificates, python3-pip")  # for `ebb pull`
set(service ${EBB_ROOT}/packaging/systemd)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_EXTRA
  ${service}/conffiles ${service}/postinst ${service}/prerm ${service}/postrm)
set(CPACK_DEBIAN_PROGRAM_PACKAGE_CONTROL_STRICT_PERMISSION ON)
# For packages alone, whose prefix is /usr.
install(FILES ${service}/ebb-serve.service ${service}/ebb-serve.socket
  DESTINATION lib/systemd/system COMPONENT program EXCLUDE_FROM_ALL)
install(FILES ${CMAKE_BINARY_DIR}/printed/serve.toml
  DESTINATION ../etc/ebb COMPONENT program EXCLUDE_FROM_ALL)
set(CPACK_DEBIAN_LABORATORY_PACKAGE_NAME ebb-lab)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME libebb${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_CONTROL_EXTRA ${EBB_ROOT}/packaging/triggers)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libebb-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_COMPONENT_PROGRAM_DEPENDS library)
set(CPACK_COMPONENT_LABORATORY_DEPENDS library)
set(CPACK_COMPONENT_DEVELOPMENT_DEPENDS library)
set(long "Its key-value cache lies in fast memory, in a file or in the host's memory
at full precision, compressed, or is let go, row by row, within one long
generation.

")
set(CPACK_COMPONENT_PROGRAM_DESCRIPTION "${long}The program: generation, chat, a server.")
set(CPACK_COMPONENT_LABORATORY_DESCRIPTION "${long}Programs that evaluate models under cache policies and measure speed.")
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "${long}The shared library.")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${long}Headers and packages for building programs on them.")
ebb_compressed(${EBB_ROOT}/CHANGELOG.md changelog.gz)
ebb_compressed(${EBB_ROOT}/packaging/changelog changelog.Debian.gz)
foreach(component program laboratory library development)
  string(TOUPPER ${component} upper)
  set(package ${CPACK_DEBIAN_${upper}_PACKAGE_NAME})
  set(folder ${CMAKE_INSTALL_DATADIR}/doc/${package})
  install(FILES ${EBB_ROOT}/packaging/copyright ${CMAKE_BINARY_DIR}/printed/changelog.gz
    DESTINATION ${folder} COMPONENT ${component})
  # For packages alone.
  install(FILES ${CMAKE_BINARY_DIR}/printed/changelog.Debian.gz
    DESTINATION ${folder} COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${EBB_ROOT}/packaging/lintian-overrides RENAME ${package}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()
# Not CHMOD_RECURSE, which fails at libebb.so: that is a link to a file of another package.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/package_folders.cmake @ONLY CONTENT [=[
file(GLOB_RECURSE paths LIST_DIRECTORIES true ${CPACK_TEMPORARY_DIRECTORY}/*)
foreach(path IN LISTS paths)
  if(IS_DIRECTORY ${path} AND NOT IS_SYMLINK ${path})
    file(CHMOD ${path} DIRECTORY_PERMISSIONS @CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS@)
  endif()
endforeach()
]=])
set(CPACK_PRE_BUILD_SCRIPTS ${CMAKE_BINARY_DIR}/package_folders.cmake)
include(CPack)
