# The .proto files of muster/proto: C++ classes in one OBJECT library, and a descriptor set from which the Python
# package makes its message classes at run time (no generated Python to fall out of step with the runtime).
# One call of protoc makes both; the descriptor set also holds the imported google/protobuf files, imports first.
file(GLOB_RECURSE MUSTER_PROTOS CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/muster/proto/*.proto)
set(MUSTER_DESCRIPTORS ${PROJECT_BINARY_DIR}/muster_protos.bin)
if(MUSTER_PROTOS)
  set(proto_root ${PROJECT_SOURCE_DIR}/muster/proto)
  set(proto_out ${PROJECT_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${proto_out})
  set(proto_sources)
  set(proto_headers)
  foreach(proto ${MUSTER_PROTOS})
    file(RELATIVE_PATH stem ${proto_root} ${proto})
    string(REGEX REPLACE "\\.proto$" "" stem ${stem})
    list(APPEND proto_sources ${proto_out}/${stem}.pb.cc)
    list(APPEND proto_headers ${proto_out}/${stem}.pb.h)
  endforeach()
  add_custom_command(
    OUTPUT ${proto_sources} ${proto_headers} ${MUSTER_DESCRIPTORS}
    COMMAND protobuf::protoc --cpp_out=${proto_out} --descriptor_set_out=${MUSTER_DESCRIPTORS} --include_imports
            -I ${proto_root} ${MUSTER_PROTOS}
    DEPENDS ${MUSTER_PROTOS} COMMENT "Generating protocol buffers" VERBATIM)
  add_custom_target(muster_descriptors ALL DEPENDS ${MUSTER_DESCRIPTORS})
  add_library(muster_proto OBJECT ${proto_sources})
  add_dependencies(muster_proto muster_descriptors)
  target_include_directories(muster_proto SYSTEM PUBLIC ${proto_out})
  target_link_libraries(muster_proto PUBLIC protobuf::libprotobuf)
  target_compile_options(muster_proto PRIVATE -w $<$<CONFIG:Release>:-O1>)
  if(MUSTER_UNITY)
    # Most of the time goes into protobuf's headers, so files are compiled in batches. Each has two tables of the same names.
    set_target_properties(muster_proto PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 10 UNITY_BUILD_UNIQUE_ID MUSTER_FILE
      UNITY_BUILD_CODE_BEFORE_INCLUDE "#undef schemas\n#undef file_default_instances
#define MUSTER_NAME_OF(name, file) name##_##file\n#define MUSTER_NAME(name, file) MUSTER_NAME_OF(name, file)
#define schemas MUSTER_NAME(schemas_of, MUSTER_FILE)\n#define file_default_instances MUSTER_NAME(instances_of, MUSTER_FILE)")
  endif()
  set_property(GLOBAL APPEND PROPERTY MUSTER_LAYERS muster_proto)
  set_property(GLOBAL APPEND PROPERTY MUSTER_LIBRARIES protobuf::libprotobuf)
endif()
