# The library, the program and what they are linked with. Sources are found by their place and
# name: adding a file needs no change here.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
# Headers alone: Boost.Math, and Asio and Beast for src/server.
find_package(Boost 1.74 REQUIRED CONFIG)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
# A header for the program. Its CMake package would link Debian's shared library.
find_path(EBB_TOMLPLUSPLUS toml++/toml.h REQUIRED)
pkg_check_modules(hwy REQUIRED IMPORTED_TARGET libhwy)
pkg_check_modules(xxhash REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(liburing REQUIRED IMPORTED_TARGET liburing)
# Hashes and random bits, for src/server and the program.
pkg_check_modules(libsodium REQUIRED IMPORTED_TARGET libsodium)
# Models by name, for the program, which loads it when it sends its first request.
pkg_check_modules(libcurl REQUIRED IMPORTED_TARGET libcurl>=7.85)
pkg_check_modules(libedit REQUIRED IMPORTED_TARGET libedit)
pkg_check_modules(hiredis REQUIRED IMPORTED_TARGET hiredis)

set(EBB_ROOT ${CMAKE_CURRENT_SOURCE_DIR})
# A folder may still be empty; a library may not.
set(EBB_EMPTY_SOURCE ${CMAKE_BINARY_DIR}/generated/empty.cc)
file(CONFIGURE OUTPUT ${EBB_EMPTY_SOURCE} CONTENT "// Keeps a library without sources valid.\n")

# Sets `result` to the files that match the patterns, less those that match the regular expression.
function(ebb_glob result exclude)
  list(TRANSFORM ARGN PREPEND ${EBB_ROOT}/ OUTPUT_VARIABLE patterns)
  file(GLOB_RECURSE files CONFIGURE_DEPENDS ${patterns})
  list(FILTER files EXCLUDE REGEX "${exclude}")
  set(${result} ${files} PARENT_SCOPE)
endfunction()

# Compiles the sources of a folder at once (EBB_BY_FOLDER), eight at most, which reads headers once, and makes of
# templates what they make once. So names of a folder's unnamed namespaces must differ. Arguments: sources that
# stay alone.
function(ebb_compile_by_folder target)
  if(NOT EBB_BY_FOLDER)
    return()
  endif()
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  list(TRANSFORM ARGN PREPEND ${EBB_ROOT}/ OUTPUT_VARIABLE alone)
  list(REMOVE_ITEM sources ${alone})
  foreach(source IN LISTS sources)
    cmake_path(GET source PARENT_PATH folder)
    cmake_path(RELATIVE_PATH folder BASE_DIRECTORY ${EBB_ROOT})
    string(MAKE_C_IDENTIFIER "${folder}" folder)
    list(LENGTH sources_of_${folder} group)
    math(EXPR group "${group} / 8")
    list(APPEND sources_of_${folder} ${source})
    set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${folder}_${group})
  endforeach()
endfunction()

configure_file(${EBB_ROOT}/include/ebb/version.h.in ${CMAKE_BINARY_DIR}/generated/ebb/version.h)

# The symbols of a shared library are those of include/ebb, whose namespaces say so.
function(ebb_add_shared_library name output)
  add_library(${name} SHARED ${ARGN})
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ${output} LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_link_options(${name} PRIVATE LINKER:--exclude-libs,ALL LINKER:--no-undefined)
endfunction()

# The public headers.
add_library(ebb_headers INTERFACE)
target_compile_features(ebb_headers INTERFACE cxx_std_20)
target_include_directories(ebb_headers INTERFACE ${EBB_ROOT}/include ${CMAKE_BINARY_DIR}/generated)

# Shows the headers of one folder to `target` and to the targets that link it, under their usual names
# (#include "src/kv/tables/token_table.h"): the include path holds a link to that folder alone. So an include from a folder
# whose target is not linked does not compile. Messages and debuggers name the files by their own paths.
function(ebb_show_folder target folder)
  set(tree ${CMAKE_BINARY_DIR}/generated/headers/${target})
  cmake_path(GET folder PARENT_PATH parent)
  file(MAKE_DIRECTORY ${tree}/${parent})
  file(CREATE_LINK ${EBB_ROOT}/${folder} ${tree}/${folder} SYMBOLIC)
  get_target_property(type ${target} TYPE)
  set(scope PUBLIC)
  if(type STREQUAL INTERFACE_LIBRARY)
    set(scope INTERFACE)
  endif()
  target_include_directories(${target} ${scope} $<BUILD_INTERFACE:${tree}>)
  target_compile_options(${target} ${scope}
    $<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${tree}/=${EBB_ROOT}/>>)
endfunction()

# Compiles the headers that most sources include once, for targets with the same OPTIONS: REUSE_FROM.
set(precompiled_headers <algorithm> <array> <cmath> <cstddef> <cstdint> <functional> <map> <memory> <optional> <span>
  <string> <string_view> <utility> <vector> <fmt/format.h> <ebb/status.h> <ebb/types.h>)
function(ebb_precompile name)
  cmake_parse_arguments(arg "" "" "HEADERS;OPTIONS;LIBRARIES" ${ARGN})
  add_library(${name} OBJECT EXCLUDE_FROM_ALL ${EBB_EMPTY_SOURCE})
  target_compile_options(${name} PRIVATE ${arg_OPTIONS})
  target_link_libraries(${name} PRIVATE ebb_options ebb_headers fmt::fmt ${arg_LIBRARIES})
  target_precompile_headers(${name} PRIVATE ${precompiled_headers} ${arg_HEADERS})
  # Without ccache: its preprocessor reads the file that is to be replaced, so that its key knows nothing of headers
  # that changed since, and it may return the file of another revision.
  set_target_properties(${name} PROPERTIES CXX_COMPILER_LAUNCHER "")
endfunction()
ebb_precompile(ebb_layers_pch)

# ebb_add_layer(kv ebb_rows PRIVATE ...): the library ebb_kv, of the sources of src/kv. Targets that link it see
# its headers, and those of the libraries before PRIVATE.
set(EBB_LAYERS "")
function(ebb_add_layer name)
  ebb_glob(sources "(_test|_fuzz)\\.cc$" src/${name}/*.cc)
  add_library(ebb_${name} STATIC ${sources})
  ebb_show_folder(ebb_${name} src/${name})
  target_link_libraries(ebb_${name} PRIVATE ebb_options fmt::fmt PUBLIC ebb_headers ${ARGN})
  target_precompile_headers(ebb_${name} REUSE_FROM ebb_layers_pch)
  set(EBB_LAYERS ${EBB_LAYERS} ${name} PARENT_SCOPE)
endfunction()
ebb_add_layer(base PRIVATE ggml llama)
ebb_add_layer(io ebb_base PRIVATE PkgConfig::hwy PkgConfig::liburing PkgConfig::xxhash)
ebb_add_layer(attention ebb_base PkgConfig::hwy PRIVATE ggml)
ebb_add_layer(device ebb_base ggml)
ebb_add_layer(policy ebb_base PRIVATE PkgConfig::hwy)
ebb_add_layer(model ebb_base ggml PRIVATE ebb_llama_chat llama nlohmann_json::nlohmann_json PkgConfig::xxhash)
ebb_add_layer(rows ebb_attention ebb_io ebb_device)
ebb_add_layer(kv ebb_rows)
# src/policy has functions of include/ebb/signals.h, which a step calls; its headers a step does not see.
ebb_add_layer(step ebb_kv ebb_model $<LINK_ONLY:ebb_policy> PRIVATE nlohmann_json::nlohmann_json)
ebb_add_layer(sequence ebb_step ebb_policy PRIVATE PkgConfig::xxhash)
ebb_add_layer(lossless ebb_sequence PRIVATE PkgConfig::xxhash)
ebb_add_layer(session ebb_lossless PRIVATE PkgConfig::xxhash)
ebb_add_layer(generate ebb_session)
ebb_add_layer(fit ebb_sequence PRIVATE PkgConfig::xxhash)

# The shared library: the objects of all layers.
set(top_layers ebb_generate ebb_fit)
function(ebb_add_shared_layers name)
  list(TRANSFORM EBB_LAYERS REPLACE "(.+)" "$<TARGET_OBJECTS:ebb_\\1>" OUTPUT_VARIABLE objects)
  ebb_add_shared_library(${name} ebb ${objects})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_include_directories(${name} PUBLIC
    $<BUILD_INTERFACE:${EBB_ROOT}/include> $<BUILD_INTERFACE:${CMAKE_BINARY_DIR}/generated>
    $<INSTALL_INTERFACE:include>)
  target_link_libraries(${name} PRIVATE ebb_options ${top_layers})
endfunction()
# The library: that one, or a name for all layers where it is static.
if(EBB_SHARED)
  ebb_add_shared_layers(ebb)
else()
  add_library(ebb INTERFACE)
  list(TRANSFORM top_layers REPLACE "(.+)" "$<LINK_ONLY:\\1>")
  target_link_libraries(ebb INTERFACE ebb_headers ${top_layers})
  # What becomes no part of a shared library is compiled as usual.
  unset(CMAKE_POSITION_INDEPENDENT_CODE)
  unset(CMAKE_C_VISIBILITY_PRESET)
  unset(CMAKE_CXX_VISIBILITY_PRESET)
  unset(CMAKE_VISIBILITY_INLINES_HIDDEN)
endif()
add_library(ebb::ebb ALIAS ebb)

# For tests of several layers, benchmarks and fuzzers: the library, and all that its layers see.
add_library(ebb_internal INTERFACE)
target_include_directories(ebb_internal INTERFACE ${EBB_ROOT})
target_link_libraries(ebb_internal INTERFACE
  ebb ebb_options ebb_llama_chat llama ggml PkgConfig::hwy PkgConfig::liburing PkgConfig::xxhash
  Boost::headers fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)

# Highway compiles these for each instruction set, and chooses when the program runs. With EBB_NATIVE they are compiled
# for this machine's alone, except in ebb_attention_kernels and ebb_policy_kernels, which their tests and benchmarks link before the layers.
set(kernel_sources
  src/attention/cpu_full.cc src/attention/cpu_prefill.cc src/attention/cpu_compressed.cc
  src/attention/trellis_writer.cc
  src/policy/score_loops.cc src/policy/selectors/key_ranges.cc)
# Highway's lowest instruction set here is SSE4; below it the packaged version falls back to one lane.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  set(EBB_KERNEL_OPTIONS -msse4.2 -maes -mpclmul)
endif()
# On arm64 kernels are NEON's, which every such processor has. They keep vectors in arrays, where a vector of SVE, whose
# size no compiler knows, cannot be; and without a choice at run time (the second definition) Highway marks functions
# with no instruction set that g++ would miss in the constructors that it writes itself.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64|ARM64")
  target_compile_definitions(PkgConfig::hwy INTERFACE
    "HWY_BROKEN_TARGETS=(HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)" TOOLCHAIN_MISS_SYS_AUXV_H)
endif()
# Everything is inlined there: g++ 12 takes 25 minutes to watch every scope at -O3, 3 so.
if("address" IN_LIST EBB_SANITIZERS)
  list(APPEND EBB_KERNEL_OPTIONS -O1 -fno-sanitize-address-use-after-scope)
endif()
# Clang takes more than half an hour. Fuzzers look elsewhere, and the sanitizers' own builds look here.
if("fuzzer" IN_LIST EBB_SANITIZERS)
  list(APPEND EBB_KERNEL_OPTIONS -fno-sanitize=all)
endif()
foreach(source IN LISTS kernel_sources)
  string(REGEX REPLACE "^src/([a-z]+)/.*" "ebb_\\1_kernels" name ${source})
  string(MAKE_C_IDENTIFIER "every_${source}" copy)
  set(copy ${CMAKE_BINARY_DIR}/generated/${copy}.cc)
  file(CONFIGURE OUTPUT ${copy} CONTENT "#include \"${source}\"\n")
  if(NOT TARGET ${name})
    add_library(${name} OBJECT EXCLUDE_FROM_ALL)
    target_compile_options(${name} PRIVATE ${EBB_KERNEL_OPTIONS})
    target_include_directories(${name} PRIVATE ${EBB_ROOT})
    target_link_libraries(${name} PRIVATE ebb_options ebb_headers PkgConfig::hwy fmt::fmt)
  endif()
  target_sources(${name} PRIVATE ${copy})
  set(options ${EBB_KERNEL_OPTIONS})
  if(EBB_NATIVE)
    list(APPEND options -march=native -DHWY_COMPILE_ONLY_STATIC)
  endif()
  set_source_files_properties(${EBB_ROOT}/${source} PROPERTIES
    COMPILE_OPTIONS "${options}" SKIP_PRECOMPILE_HEADERS ON)
endforeach()

# Kernels of CUDA, where ggml's backend for it runs them.
get_property(has_cuda_kernels GLOBAL PROPERTY EBB_HAS_CUDA_KERNELS)
if(has_cuda_kernels)
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  ebb_glob(kernels "^$" src/*.cu)
  add_library(ebb_kernels OBJECT ${kernels})
  get_target_property(architectures ggml-cuda CUDA_ARCHITECTURES)
  set_target_properties(ebb_kernels PROPERTIES
    CUDA_STANDARD 17 CUDA_ARCHITECTURES "${architectures}")
  target_include_directories(ebb_kernels PRIVATE ${EBB_ROOT} ${EBB_LLAMA_CPP_SOURCE}/ggml/include)
  set_source_files_properties(${EBB_ROOT}/src/step/device/row_attention.cc
    ${EBB_ROOT}/src/step/device/compressed_rows.cc PROPERTIES
    COMPILE_DEFINITIONS EBB_HAS_CUDA_KERNELS)
  target_sources(ebb_step PRIVATE $<TARGET_OBJECTS:ebb_kernels>)
  target_link_libraries(ebb_step PRIVATE CUDA::cudart)
endif()
# They see ggml's inside.
set(sim_backend ${EBB_ROOT}/tests/support/device/sim_backend.cc)
set_source_files_properties(${EBB_ROOT}/src/step/device/graph_part.cc ${sim_backend} PROPERTIES
  INCLUDE_DIRECTORIES ${EBB_LLAMA_CPP_SOURCE}/ggml/src COMPILE_OPTIONS -Wno-unused-function)
# Doubles of devices and of the disk's queues, which the programs that link their objects have: tests, and ebb-lab, which
# takes `--device ggml-sim` where it sees the layers' symbols.
add_library(ebb_test_device OBJECT EXCLUDE_FROM_ALL ${sim_backend})
target_link_libraries(ebb_test_device PRIVATE ebb_options ebb_device ggml)
target_include_directories(ebb_test_device PRIVATE ${EBB_ROOT})
add_library(ebb_test_queue OBJECT EXCLUDE_FROM_ALL ${EBB_ROOT}/tests/support/io/io_queue_faults.cc)
target_link_libraries(ebb_test_queue PRIVATE ebb_options ebb_io)
# They build graphs by libllama's own builders, whose headers are no interface of libllama.
file(GLOB library_sources CONFIGURE_DEPENDS ${EBB_ROOT}/src/model/library/*.cc)
set_source_files_properties(${library_sources} PROPERTIES
  COMPILE_OPTIONS "-isystem;${EBB_LLAMA_CPP_SOURCE}/src")

# Writes a source that defines the string view `space`::`symbol`, the bytes of `file`. It stays out of its folder's
# unit, where CMake would ignore that its object depends on the file.
function(ebb_embed space symbol file result)
  set(source ${CMAKE_BINARY_DIR}/generated/${symbol}.cc)
  file(CONFIGURE OUTPUT ${source} CONTENT [=[
#include <cstddef>
#include <string_view>
asm(R"(
.pushsection .rodata
.balign 64
@symbol@_begin:
.incbin "@file@"
@symbol@_end:
.popsection
)");
namespace @space@ {
extern const char @symbol@Begin[] asm("@symbol@_begin");
extern const char @symbol@End[] asm("@symbol@_end");
extern const std::string_view @symbol@;
const std::string_view @symbol@(@symbol@Begin, static_cast<size_t>(@symbol@End - @symbol@Begin));
}  // namespace @space@
]=] @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS ${file} SKIP_UNITY_BUILD_INCLUSION ON)
  set(${result} ${source} PARENT_SCOPE)
endfunction()

# Writes a source that defines the span `space`::`symbol` of a `type` {name, bytes}, which `header` declares, with an
# element for each pair of a name and a file that follows.
function(ebb_embed_table space symbol type header result)
  set(source ${CMAKE_BINARY_DIR}/generated/${symbol}.cc)
  set(blobs "")
  set(declarations "")
  set(elements "")
  set(files "")
  set(number 0)
  while(ARGN)
    list(POP_FRONT ARGN name file)
    list(APPEND files ${file})
    set(blob ${symbol}_${number})
    string(APPEND blobs ".balign 64\n${blob}_begin:\n.incbin \"${file}\"\n${blob}_end:\n")
    string(APPEND declarations "extern const char ${blob}_begin[] asm(\"${blob}_begin\");\n"
      "extern const char ${blob}_end[] asm(\"${blob}_end\");\n")
    string(APPEND elements
      "    {\"${name}\", {${blob}_begin, static_cast<size_t>(${blob}_end - ${blob}_begin)}},\n")
    math(EXPR number "${number} + 1")
  endwhile()
  file(CONFIGURE OUTPUT ${source} CONTENT [=[
#include <cstddef>
#include <span>
#include "@header@"
asm(R"(
.pushsection .rodata
@blobs@.popsection
)");
namespace @space@ {
namespace {
@declarations@const @type@ k@type@Table[] = {
@elements@};
}  // namespace
extern const std::span<const @type@> @symbol@;
const std::span<const @type@> @symbol@(k@type@Table);
}  // namespace @space@
]=] @ONLY)
  set_source_files_properties(${source} PROPERTIES OBJECT_DEPENDS "${files}" SKIP_UNITY_BUILD_INCLUSION ON)
  set(${result} ${source} PARENT_SCOPE)
endfunction()
# The small reasoner, which `ebb-lab eval` asks where no other model is named.
ebb_embed(ebb::cli kPebbleModel ${EBB_ROOT}/training/pebble/pebble.gguf pebble_model)
# Retrofits of it, which mark rows.
ebb_embed(ebb::cli kPebbleDmsModel ${EBB_ROOT}/training/dms/pebble-dms.gguf pebble_dms_model)
ebb_embed(ebb::cli kPebbleDms8Model ${EBB_ROOT}/training/dms/pebble-dms-8.gguf pebble_dms_8_model)

# Headers of src/base for what sees nothing else of it: annotated mutexes, locked files, UTF-8.
add_library(ebb_threads INTERFACE)
ebb_show_folder(ebb_threads src/base/threads)
ebb_show_folder(ebb_threads src/base/files)
ebb_show_folder(ebb_threads src/base/text)

# For the store, the server and the program.
ebb_precompile(ebb_program_pch HEADERS <nlohmann/json.hpp> <ebb/engine.h> LIBRARIES nlohmann_json::nlohmann_json
  OPTIONS ${EBB_CHEAPLY_COMPILED})

# Sessions at rest that several servers share.
ebb_glob(sources "_test\\.cc$" src/store/*.cc)
add_library(ebb_store STATIC ${sources})
ebb_compile_by_folder(ebb_store)
target_compile_options(ebb_store PRIVATE ${EBB_CHEAPLY_COMPILED})
target_precompile_headers(ebb_store REUSE_FROM ebb_program_pch)
ebb_show_folder(ebb_store src/store)
target_link_libraries(ebb_store PUBLIC
  ebb ebb_threads ebb_options fmt::fmt nlohmann_json::nlohmann_json Threads::Threads
  PRIVATE PkgConfig::hiredis PkgConfig::xxhash)

# The server: a front end that sees include/ebb, the store and itself. Its folders are libraries, each of which
# sees those that it links: ebb_add_server_part(api FOLDERS api LIBRARIES ebb_server_engine). GENERATED: sources
# that the build makes.
function(ebb_add_server_part name)
  cmake_parse_arguments(arg "" "" "FOLDERS;LIBRARIES;GENERATED" ${ARGN})
  set(target ebb_server_${name})
  list(TRANSFORM arg_FOLDERS REPLACE "(.+)" "src/server/\\1/*.cc" OUTPUT_VARIABLE patterns)
  ebb_glob(sources "_test\\.cc$" ${patterns})
  add_library(${target} STATIC ${sources} ${arg_GENERATED})
  # Its members' types are of an unnamed namespace, of which g++ warns outside a file of their own.
  ebb_compile_by_folder(${target} src/server/http/http_server.cc)
  # g++ 12 finds -Wmaybe-uninitialized in a std::variant that is moved from (GCC bug 105562).
  target_compile_options(${target} PRIVATE ${EBB_CHEAPLY_COMPILED}
    $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
  target_precompile_headers(${target} REUSE_FROM ebb_program_pch)
  foreach(folder IN LISTS arg_FOLDERS)
    ebb_show_folder(${target} src/server/${folder})
  endforeach()
  target_link_libraries(${target} PUBLIC ${arg_LIBRARIES}
    ebb ebb_threads ebb_options fmt::fmt nlohmann_json::nlohmann_json Threads::Threads)
endfunction()
ebb_add_server_part(http FOLDERS http LIBRARIES ebb_store Boost::headers)
# The thread sanitizer knows no fences; Asio's queues have locks besides.
if("thread" IN_LIST EBB_SANITIZERS)
  target_compile_definitions(ebb_server_http PUBLIC BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()
ebb_add_server_part(engine FOLDERS engine LIBRARIES ebb_store Boost::headers PkgConfig::libsodium)
ebb_add_server_part(api FOLDERS api LIBRARIES ebb_server_http ebb_server_engine)
ebb_add_server_part(access FOLDERS access LIBRARIES ebb_server_api PkgConfig::libsodium)
ebb_add_server_part(sessions FOLDERS sessions LIBRARIES ebb_server_access)

# The chat page and the libraries that draw its text, which the program serves by itself.
function(ebb_find_page_file variable name package)
  find_file(${variable} ${name} PATHS ${ARGN} NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)
  if(NOT ${variable})
    message(FATAL_ERROR "${name} is missing (Debian: ${package}); scripts/bootstrap installs it, or set ${variable}")
  endif()
endfunction()
set(EBB_JS /usr/share/javascript)
ebb_find_page_file(EBB_MARKED_JS marked.umd.min.js libjs-marked ${EBB_JS}/marked)
ebb_find_page_file(EBB_HIGHLIGHT_JS highlight.min.js libjs-highlight.js ${EBB_JS}/highlight.js)
ebb_find_page_file(EBB_KATEX_JS katex.min.js libjs-katex ${EBB_JS}/katex)
ebb_find_page_file(EBB_KATEX_CSS katex.min.css libjs-katex ${EBB_JS}/katex)
ebb_find_page_file(EBB_KATEX_FONT KaTeX_Main-Regular.woff2 fonts-katex /usr/share/fonts/truetype/katex)
get_filename_component(katex_fonts ${EBB_KATEX_FONT} DIRECTORY)
file(GLOB chat_fonts ${katex_fonts}/KaTeX_*.woff2)
file(GLOB chat_files CONFIGURE_DEPENDS ${EBB_ROOT}/src/server/chat/page/*)
set(chat_table "")
foreach(file IN LISTS chat_files)
  get_filename_component(name ${file} NAME)
  list(APPEND chat_table ${name} ${file})
endforeach()
foreach(file IN LISTS chat_fonts)
  get_filename_component(name ${file} NAME)
  list(APPEND chat_table lib/fonts/${name} ${file})
endforeach()
ebb_embed_table(ebb::server kChatFiles ChatFile src/server/chat/chat_page.h chat_page
  ${chat_table} lib/marked.js ${EBB_MARKED_JS} lib/highlight.js ${EBB_HIGHLIGHT_JS}
  lib/katex.js ${EBB_KATEX_JS} lib/katex.css ${EBB_KATEX_CSS})
ebb_add_server_part(pages FOLDERS chat monitoring LIBRARIES ebb_server_access GENERATED ${chat_page})

# What combines them.
ebb_embed(ebb::server kOpenApi ${EBB_ROOT}/docs/user/openapi.yaml open_api)
file(GLOB sources CONFIGURE_DEPENDS ${EBB_ROOT}/src/server/*.cc)
list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
add_library(ebb_server STATIC ${sources} ${open_api})
ebb_compile_by_folder(ebb_server)
target_compile_options(ebb_server PRIVATE ${EBB_CHEAPLY_COMPILED}
  $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
target_precompile_headers(ebb_server REUSE_FROM ebb_program_pch)
ebb_show_folder(ebb_server src/server)
target_link_libraries(ebb_server PUBLIC ebb_server_sessions ebb_server_pages)

# The laboratory: evaluation, labels, fidelity, pebble. It sees include/ebb and itself. ebb-lab and the Python package
# link it (cmake/sdk.cmake); it is not installed.
include(${EBB_ROOT}/cmake/commit.cmake)
ebb_glob(sources "_test\\.cc$" lab/*.cc)
add_library(ebb_lab STATIC ${sources})
add_dependencies(ebb_lab ebb_commit)
target_include_directories(ebb_lab PRIVATE ${EBB_COMMIT_FOLDER})
ebb_compile_by_folder(ebb_lab)
target_compile_options(ebb_lab PRIVATE $<$<CONFIG:Release>:-O2>)
set_target_properties(ebb_lab PROPERTIES
  POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
ebb_show_folder(ebb_lab lab)
target_include_directories(ebb_lab PUBLIC $<BUILD_INTERFACE:${EBB_ROOT}/lab/include>)
target_link_libraries(ebb_lab PUBLIC ebb PRIVATE ebb_options Boost::headers fmt::fmt
  nlohmann_json::nlohmann_json PkgConfig::xxhash Threads::Threads $<BUILD_INTERFACE:ebb_threads>)

# ebb_add_program(ebb_lab_cli ebb-lab apps/lab LIBRARIES...): the program `ebb-lab` of a folder, and the library
# ebb_lab_cli_parts of all that it has but main.cc, which tests link.
function(ebb_add_program_parts name folder)
  ebb_glob(sources "_test\\.cc$|/main\\.cc$" ${folder}/*.cc)
  add_library(${name} STATIC ${sources})
  ebb_compile_by_folder(${name})
  target_compile_options(${name} PRIVATE ${EBB_CHEAPLY_COMPILED})
  target_precompile_headers(${name} REUSE_FROM ebb_program_pch)
  ebb_show_folder(${name} ${folder})
  target_link_libraries(${name} PUBLIC ${ARGN})
endfunction()
function(ebb_add_program name output folder)
  ebb_add_program_parts(${name}_parts ${folder} ebb_common_parts ${ARGN})
  add_executable(${name} ${EBB_ROOT}/${folder}/main.cc)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ${output})
  target_link_libraries(${name} PRIVATE ${name}_parts)
endfunction()

# What the programs share: options, the terminal, models by name, documents made from the tables. It sees include/ebb
# and itself.
ebb_add_program_parts(ebb_common_parts apps/common ebb ebb_threads ebb_options CLI11::CLI11 fmt::fmt
  nlohmann_json::nlohmann_json PkgConfig::xxhash PkgConfig::libedit PkgConfig::libsodium Threads::Threads
  ${CMAKE_DL_LIBS})
target_sources(ebb_common_parts PRIVATE ${pebble_model} ${pebble_dms_model} ${pebble_dms_8_model})
target_include_directories(ebb_common_parts PRIVATE ${libcurl_INCLUDE_DIRS} ${EBB_TOMLPLUSPLUS})

# The programs.
set(EBB_BINARY ${CMAKE_BINARY_DIR}/bin/ebb)
ebb_add_program(ebb_cli ebb apps/ebb ebb_server)
ebb_add_program(ebb_lab_cli ebb-lab apps/lab ebb_lab)
if(NOT EBB_SHARED)
  target_sources(ebb_lab_cli PRIVATE $<TARGET_OBJECTS:ebb_test_device>)
endif()
ebb_add_program(ebb_bench_cli ebb-bench apps/bench)
