# The .proto files of muster/proto: C++ classes in one OBJECT library, and a descriptor set from which the Python
# package makes its message classes at run time (no generated Python to fall out of step with the runtime).
file(GLOB_RECURSE MUSTER_PROTOS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/muster/proto/*.proto)
set(MUSTER_DESCRIPTORS ${PROJECT_BINARY_DIR}/muster_protos.bin)
if(MUSTER_PROTOS)
  set(proto_root ${PROJECT_SOURCE_DIR}/muster/proto)
  set(proto_sources)
  foreach(proto ${MUSTER_PROTOS})
    file(RELATIVE_PATH stem ${proto_root} ${proto})
    string(REGEX REPLACE "\\.proto$" "" stem ${stem})
    set(out ${PROJECT_BINARY_DIR}/proto/${stem})
    add_custom_command(
      OUTPUT ${out}.pb.cc ${out}.pb.h
      COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/proto
      COMMAND protobuf::protoc --cpp_out=${PROJECT_BINARY_DIR}/proto -I ${proto_root} ${proto}
      DEPENDS ${proto} VERBATIM)
    list(APPEND proto_sources ${out}.pb.cc)
  endforeach()
  add_custom_command(
    OUTPUT ${MUSTER_DESCRIPTORS}
    COMMAND protobuf::protoc --descriptor_set_out=${MUSTER_DESCRIPTORS} -I ${proto_root} ${MUSTER_PROTOS}
    DEPENDS ${MUSTER_PROTOS} VERBATIM)
  add_custom_target(muster_descriptors ALL DEPENDS ${MUSTER_DESCRIPTORS})
  add_library(muster_proto OBJECT ${proto_sources})
  target_include_directories(muster_proto SYSTEM PUBLIC ${PROJECT_BINARY_DIR}/proto)
  target_link_libraries(muster_proto PUBLIC protobuf::libprotobuf)
  target_compile_options(muster_proto PRIVATE -w)
  set_property(GLOBAL APPEND PROPERTY MUSTER_LAYERS muster_proto)
  set_property(GLOBAL APPEND PROPERTY MUSTER_LIBRARIES protobuf::libprotobuf)
endif()
