# How rooms, programs and their tests become targets.
#
#   varda_room(artifact DEPS net os codec LIBS archive)
#
# makes the library target `varda_artifact` (alias varda::artifact) from every *.cc in the folder, `artifact_test` from every
# *_test.cc, and `varda_artifact_testing` from testing/*.cc where that folder exists. DEPS are rooms, LIBS third-party libraries
# (linked PRIVATE: their headers stay inside this room's .cc files). TEST_DEPS are further rooms only the tests need; what they
# offer in testing/ is linked as well. SUBDIRS are folders of the room whose *.cc and *_test.cc belong to it too: a room with many
# parts of one shape keeps a folder for each.

include_guard()
find_package(GTest REQUIRED)
find_package(Threads REQUIRED)

set_property(GLOBAL PROPERTY VARDA_ROOMS "")
add_custom_target(unit_tests)  # every room's test program

function(varda_room name)
  cmake_parse_arguments(ROOM "" "" "DEPS;LIBS;TEST_DEPS;TEST_LIBS;SUBDIRS" ${ARGN})
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

  if(sources)
    add_library(varda_${name} STATIC ${sources})
    target_link_libraries(varda_${name} PUBLIC ${deps} Threads::Threads PRIVATE ${ROOM_LIBS})
    target_include_directories(varda_${name} PUBLIC ${PROJECT_SOURCE_DIR}/src)
    if(TARGET varda_headers)
      target_precompile_headers(varda_${name} REUSE_FROM varda_headers)
    endif()
  else()
    add_library(varda_${name} INTERFACE)
    target_link_libraries(varda_${name} INTERFACE ${deps} Threads::Threads)
    target_include_directories(varda_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
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
    target_compile_definitions(${name}_test PRIVATE VARDA_TESTDATA="${CMAKE_CURRENT_SOURCE_DIR}/testdata")
    if(fakes)
      target_link_libraries(${name}_test PRIVATE varda_${name}_testing)
    endif()
    foreach(room ${ROOM_DEPS} ${ROOM_TEST_DEPS})
      target_link_libraries(${name}_test PRIVATE varda::${room})
      if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/src/${room}/testing)
        file(GLOB room_fakes ${PROJECT_SOURCE_DIR}/src/${room}/testing/*.cc)
        if(room_fakes)
          target_link_libraries(${name}_test PRIVATE varda_${room}_testing)
        endif()
      endif()
    endforeach()
    add_test(NAME ${name} COMMAND ${name}_test)
    add_dependencies(unit_tests ${name}_test)
    set_tests_properties(${name} PROPERTIES TIMEOUT 300 LABELS room)
  endif()

  # What the include-direction test reads.
  set_property(GLOBAL APPEND_STRING PROPERTY VARDA_ROOMS "${name}: ${ROOM_DEPS} | ${ROOM_TEST_DEPS}\n")
endfunction()

# varda_app(varda DEPS runtime controllers LIBS CLI11::CLI11): a program in bin/ from every *.cc of the folder.
function(varda_app name)
  cmake_parse_arguments(APP "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  list(FILTER sources EXCLUDE REGEX "_test\\.cc$")
  list(TRANSFORM APP_DEPS PREPEND varda::)
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE ${APP_DEPS} ${APP_LIBS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
endfunction()

function(varda_write_rooms)
  get_property(rooms GLOBAL PROPERTY VARDA_ROOMS)
  file(WRITE ${CMAKE_BINARY_DIR}/rooms.txt "${rooms}")
endfunction()
