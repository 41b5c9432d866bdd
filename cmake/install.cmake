# What `cmake --install` and `pip install .` put where. The Python package adds its own part in python/CMakeLists.txt.
#
#   cmake --install    bin/muster  lib/libmuster.so  lib/pkgconfig/muster.pc  include/muster/**  lib/muster/python/muster/**
#   pip (SKBUILD)      the component "python" only: muster/libmuster.so, muster/bin/muster beside the package's modules
if(SKBUILD)
  set(library_destination muster)
  set(command_destination muster/bin)
  set(command_rpath "$ORIGIN/..")
else()
  set(library_destination lib)
  set(command_destination bin)
  set(command_rpath "$ORIGIN/../lib")
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/muster/ DESTINATION include/muster
    FILES_MATCHING PATTERN "*.h" PATTERN "cli" EXCLUDE PATTERN "*_test.h" EXCLUDE)
  # Generated: typed op functions, and the proto classes that the *_proto.h headers name.
  install(DIRECTORY ${PROJECT_BINARY_DIR}/generated/ DESTINATION include OPTIONAL FILES_MATCHING PATTERN "*.h")
  install(DIRECTORY ${PROJECT_BINARY_DIR}/proto/ DESTINATION include/muster/proto FILES_MATCHING PATTERN "*.pb.h")
  configure_file(${PROJECT_SOURCE_DIR}/cmake/muster.pc.in muster.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/muster.pc DESTINATION lib/pkgconfig)
endif()

install(TARGETS muster LIBRARY DESTINATION ${library_destination} COMPONENT python)
if(TARGET muster_cli)
  set_target_properties(muster_cli PROPERTIES INSTALL_RPATH ${command_rpath})
  install(TARGETS muster_cli RUNTIME DESTINATION ${command_destination} COMPONENT python)
endif()
