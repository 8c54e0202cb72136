# Functions that turn rooms, programs and tests into targets.
#
#   varda_room(artifact DEPS net os codec LIBS archive)
#
# makes the library target `varda_artifact` (alias varda::artifact) from every *.cc in the folder,
# `artifact_test` from every *_test.cc, and `varda_artifact_testing` from testing/*.cc where that
# folder exists. DEPS are rooms. LIBS are third-party libraries, linked PRIVATE: their headers stay
# inside this room's .cc files. TEST_DEPS are further rooms that only the tests need, linked with
# their testing/ libraries. SUBDIRS are folders of the room; their *.cc and *_test.cc belong to the
# room. A room with many parts of one shape keeps a folder for each.
#
# A room is a folder of src/, or of an area such as src/embedded/. Includes name the room only:
# "apiserver/server.h".
#
# With VARDA_UNITY the compiler reads many sources of one target as one. A build from nothing then
# takes about a third of the time. Names in anonymous namespaces must be unique in a room for that.
# The preset `dev` builds file by file: it is quicker after a small change, and proves that each
# file includes what it uses. ALONE names sources that stay separate.
#
# Paths given to tests begin at the root of the checkout, where ctest runs them. The compiled code
# is then the same in every clone, so that all clones share the compiler cache.

include_guard()
find_package(GTest REQUIRED)
find_package(Threads REQUIRED)

cmake_path(RELATIVE_PATH CMAKE_BINARY_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE VARDA_BUILD_FROM_ROOT)
set_property(GLOBAL PROPERTY VARDA_ROOMS "")
add_custom_target(programs)    # the programs and the engines they load, for `make build`
add_custom_target(unit_tests)  # every room's test program
add_custom_target(e2e_programs DEPENDS programs)  # plus the example worker and test engine
add_custom_target(checks DEPENDS programs)      # the needs of the stage `checks`, release build

# varda_test(NAME LABEL room COMMAND program args [SHARDS 4] [TIMEOUT 900] [ENVIRONMENT A=b]): a
# ctest test with the root of the checkout as working directory. A gtest program writes the time of
# each case to Testing/gtest/NAME.xml of the build directory. With SHARDS it becomes NAME_1, NAME_2,
# …, each with a part of the cases.
function(varda_test name)
  cmake_parse_arguments(TEST "" "SHARDS;LABEL;TIMEOUT" "COMMAND;ENVIRONMENT" ${ARGN})
  if(NOT TEST_TIMEOUT)
    set(TEST_TIMEOUT 900)  # seconds, for a program; only a hang on a busy machine takes so long
  endif()
  if(NOT TEST_SHARDS)
    set(TEST_SHARDS 1)
  endif()
  foreach(shard RANGE 1 ${TEST_SHARDS})
    set(environment ${TEST_ENVIRONMENT})
    set(test ${name})
    if(TEST_SHARDS GREATER 1)
      set(test ${name}_${shard})
      math(EXPR index "${shard} - 1")
      list(APPEND environment GTEST_TOTAL_SHARDS=${TEST_SHARDS} GTEST_SHARD_INDEX=${index})
    endif()
    list(APPEND environment GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/Testing/gtest/${test}.xml)
    add_test(NAME ${test} COMMAND ${TEST_COMMAND} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(${test} PROPERTIES TIMEOUT ${TEST_TIMEOUT} LABELS ${TEST_LABEL} ENVIRONMENT "${environment}"
                         COST ${TEST_SHARDS})  # the longest begin first
  endforeach()
endfunction()

# Replaces the sources in the caller's list by files that include several of them, up to 260 kB
# each. A larger source stays alone in its file.
function(varda_unity target list_name)
  if(NOT VARDA_UNITY)
    return()
  endif()
  cmake_parse_arguments(UNITY "" "" "ALONE" ${ARGN})
  set(out "")
  set(content "")
  set(total 0)
  set(number 0)
  foreach(source ${${list_name}})
    cmake_path(GET source FILENAME name)
    if(name IN_LIST UNITY_ALONE)
      list(APPEND out ${source})
      continue()
    endif()
    file(SIZE ${source} size)
    math(EXPR sum "${total} + ${size}")
    if(content AND sum GREATER 260000)
      file(CONFIGURE OUTPUT unity/${target}_${number}.cc CONTENT "${content}" @ONLY)
      list(APPEND out ${CMAKE_CURRENT_BINARY_DIR}/unity/${target}_${number}.cc)
      math(EXPR number "${number} + 1")
      set(content "")
      set(sum ${size})
    endif()
    set(total ${sum})
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE relative)
    # A path from the root of the checkout gives the same text in every clone.
    string(APPEND content "#include \"${relative}\"\n")
  endforeach()
  if(content)
    file(CONFIGURE OUTPUT unity/${target}_${number}.cc CONTENT "${content}" @ONLY)
    list(APPEND out ${CMAKE_CURRENT_BINARY_DIR}/unity/${target}_${number}.cc)
  endif()
  set(${list_name} ${out} PARENT_SCOPE)
endfunction()

function(varda_room name)
  cmake_parse_arguments(ROOM "" "SHARDS" "TEST_ENVIRONMENT;DEPS;LIBS;TEST_DEPS;TEST_LIBS;SUBDIRS;ALONE" ${ARGN})
  list(TRANSFORM ROOM_SUBDIRS APPEND "/*.cc" OUTPUT_VARIABLE subdir_sources)
  list(TRANSFORM ROOM_SUBDIRS APPEND "/*_test.cc" OUTPUT_VARIABLE subdir_tests)
  file(GLOB sources CONFIGURE_DEPENDS *.cc internal/*.cc ${subdir_sources})
  file(GLOB tests CONFIGURE_DEPENDS *_test.cc internal/*_test.cc testing/*_test.cc ${subdir_tests})
  file(GLOB fakes CONFIGURE_DEPENDS testing/*.cc)
  if(tests)
    list(REMOVE_ITEM sources ${tests})
    list(REMOVE_ITEM fakes ${tests})
  endif()
  list(TRANSFORM ROOM_DEPS PREPEND varda:: OUTPUT_VARIABLE deps)
  cmake_path(GET CMAKE_CURRENT_SOURCE_DIR PARENT_PATH area)  # src, or the folder of an area

  varda_unity(varda_${name} sources ALONE ${ROOM_ALONE})
  varda_unity(varda_${name}_testing fakes)
  varda_unity(${name}_test tests ALONE ${ROOM_ALONE})

  if(sources)
    add_library(varda_${name} STATIC ${sources})
    target_link_libraries(varda_${name} PUBLIC ${deps} Threads::Threads PRIVATE ${ROOM_LIBS})
    target_include_directories(varda_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src ${area})
  else()
    add_library(varda_${name} INTERFACE)
    target_link_libraries(varda_${name} INTERFACE ${deps} Threads::Threads)
    target_include_directories(varda_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src ${area})
  endif()
  add_library(varda::${name} ALIAS varda_${name})

  if(fakes)
    list(TRANSFORM ROOM_TEST_DEPS PREPEND varda:: OUTPUT_VARIABLE fake_deps)
    add_library(varda_${name}_testing STATIC ${fakes})
    target_link_libraries(varda_${name}_testing PUBLIC varda::${name} ${fake_deps} GTest::gtest)
  endif()

  if(tests AND VARDA_TESTS)
    add_executable(${name}_test ${tests})
    target_link_libraries(${name}_test PRIVATE varda::${name} ${ROOM_LIBS} ${ROOM_TEST_LIBS} GTest::gmock GTest::gtest_main)
    cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${PROJECT_SOURCE_DIR} OUTPUT_VARIABLE folder)
    target_compile_definitions(${name}_test PRIVATE VARDA_TESTDATA="${folder}/testdata")
    target_compile_options(${name}_test PRIVATE -O0)  # a test is compiled more often than it runs
    if(fakes)
      target_link_libraries(${name}_test PRIVATE varda_${name}_testing)
    endif()
    foreach(room ${ROOM_DEPS} ${ROOM_TEST_DEPS})
      target_link_libraries(${name}_test PRIVATE varda::${room})
      file(GLOB room_fakes ${PROJECT_SOURCE_DIR}/src/${room}/testing/*.cc
           ${PROJECT_SOURCE_DIR}/src/embedded/${room}/testing/*.cc)
      if(room_fakes)
        target_link_libraries(${name}_test PRIVATE varda_${room}_testing)
      endif()
    endforeach()
    add_dependencies(unit_tests ${name}_test)
    varda_test(${name} SHARDS ${ROOM_SHARDS} LABEL room COMMAND ${name}_test ENVIRONMENT ${ROOM_TEST_ENVIRONMENT})
  endif()

  # Input of the test include_direction.
  set_property(GLOBAL APPEND_STRING PROPERTY VARDA_ROOMS "${name}: ${ROOM_DEPS} | ${ROOM_TEST_DEPS}\n")
endfunction()

# varda_app(varda DEPS runtime controllers LIBS CLI11::CLI11): a program in bin/ from every *.cc of
# the folder. All sources but main.cc form the library `varda_app_parts`, which `varda_app_test`
# links instead of compiling them again. The test program has every *_test.cc. TEST_DEPS are further
# rooms that only the tests need.
function(varda_app name)
  cmake_parse_arguments(APP "" "" "DEPS;LIBS;TEST_DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|/main)\\.cc$")
  list(TRANSFORM APP_DEPS PREPEND varda::)
  list(TRANSFORM APP_TEST_DEPS PREPEND varda::)
  varda_unity(${name}_app_parts sources)
  add_library(${name}_app_parts STATIC ${sources})
  target_link_libraries(${name}_app_parts PUBLIC ${APP_DEPS} ${APP_LIBS})
  add_executable(${name} main.cc)
  target_link_libraries(${name} PRIVATE ${name}_app_parts)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
  add_dependencies(programs ${name})
  if(tests AND VARDA_TESTS)
    varda_unity(${name}_app_test tests)
    add_executable(${name}_app_test ${tests})
    target_link_libraries(${name}_app_test PRIVATE ${name}_app_parts ${APP_TEST_DEPS} GTest::gmock GTest::gtest_main)
    target_compile_definitions(${name}_app_test PRIVATE VARDA_TESTDATA="apps/${name}/testdata")
    target_compile_options(${name}_app_test PRIVATE -O0)
    add_dependencies(unit_tests ${name}_app_test)
    varda_test(${name}_app LABEL room COMMAND ${name}_app_test)
  endif()
endfunction()

function(varda_write_rooms)
  get_property(rooms GLOBAL PROPERTY VARDA_ROOMS)
  file(WRITE ${CMAKE_BINARY_DIR}/rooms.txt "${rooms}")
endfunction()
