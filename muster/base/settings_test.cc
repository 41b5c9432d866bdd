#include "muster/base/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using testing::Eq;
using testing::Optional;

absl::StatusOr<Settings> Read(const std::map<std::string, std::string>& variables) {
  return ReadSettings([&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

TEST(Settings, WithoutVariablesTheDefaultsHold) {
  const Settings settings = Read({}).value();
  EXPECT_EQ(settings.links, Links::kAll);
  EXPECT_TRUE(settings.batches);
  EXPECT_FALSE(settings.cache_rpc_response);
  EXPECT_EQ(settings.heartbeat, std::nullopt);
  EXPECT_EQ(settings.metrics_port, std::nullopt);
  EXPECT_EQ(settings.tls_ca_file, "");
}

TEST(Settings, ReadsWhatIsSet) {
  const Settings settings = Read({{"MUSTER_FAST", "0"},
                                  {"MUSTER_BATCHES", "0"},
                                  {"MUSTER_CACHE_RPC_RESPONSE", "1"},
                                  {"MUSTER_STATUS_SOCKET", "a"},
                                  {"MUSTER_TLS_CERT", "b"},
                                  {"MUSTER_TLS_KEY", "c"},
                                  {"MUSTER_TLS_CA", "d"},
                                  {"MUSTER_AUTH_TOKEN_FILE", "e"},
                                  {"MUSTER_HEARTBEAT", "0.5"},
                                  {"MUSTER_WARN_AFTER", "2"},
                                  {"MUSTER_FAIL_AFTER", "3"},
                                  {"MUSTER_ORPHAN_GRACE", "4"},
                                  {"MUSTER_MASTER_TIMEOUT", "5"},
                                  {"MUSTER_MAX_MESSAGE_BYTES", "6"},
                                  {"MUSTER_MAX_GRAPH_NODES", "7000000000"},
                                  {"MUSTER_MAX_MEMORY_BYTES", "8000000000"},
                                  {"MUSTER_MAX_SESSION_MEMORY_BYTES", "9"},
                                  {"MUSTER_MAX_CONNECTIONS", "10"},
                                  {"MUSTER_MAX_CONNECTIONS_PER_PEER", "11"},
                                  {"MUSTER_METRICS_PORT", "0"}})
                                .value();
  EXPECT_EQ(settings.links, Links::kNone);
  EXPECT_FALSE(settings.batches);
  EXPECT_TRUE(settings.cache_rpc_response);
  EXPECT_EQ(settings.status_socket, "a");
  EXPECT_EQ(settings.tls_certificate_file, "b");
  EXPECT_EQ(settings.tls_key_file, "c");
  EXPECT_EQ(settings.tls_ca_file, "d");
  EXPECT_EQ(settings.auth_token_file, "e");
  EXPECT_THAT(settings.heartbeat, Optional(Eq(absl::Milliseconds(500))));
  EXPECT_THAT(settings.warn_after, Optional(Eq(absl::Seconds(2))));
  EXPECT_THAT(settings.fail_after, Optional(Eq(absl::Seconds(3))));
  EXPECT_THAT(settings.orphan_grace, Optional(Eq(absl::Seconds(4))));
  EXPECT_THAT(settings.master_timeout, Optional(Eq(absl::Seconds(5))));
  EXPECT_THAT(settings.max_message_bytes, Optional(6));
  EXPECT_THAT(settings.max_graph_nodes, Optional(int64_t{7000000000}));
  EXPECT_THAT(settings.max_memory_bytes, Optional(int64_t{8000000000}));
  EXPECT_THAT(settings.max_session_memory_bytes, Optional(int64_t{9}));
  EXPECT_THAT(settings.max_connections, Optional(10));
  EXPECT_THAT(settings.max_connections_per_peer, Optional(11));
  EXPECT_THAT(settings.metrics_port, Optional(0));
}

TEST(Settings, LinksAreOfThreeKinds) {
  EXPECT_EQ(Read({{"MUSTER_FAST", "0"}}).value().links, Links::kNone);
  EXPECT_EQ(Read({{"MUSTER_FAST", "network"}}).value().links, Links::kNetwork);
  EXPECT_EQ(Read({{"MUSTER_FAST", "1"}}).value().links, Links::kAll);
}

TEST(Settings, AnEmptyValueIsNone) {
  const Settings settings = Read({{"MUSTER_FAST", ""}, {"MUSTER_HEARTBEAT", ""}}).value();
  EXPECT_EQ(settings.links, Links::kAll);
  EXPECT_EQ(settings.heartbeat, std::nullopt);
}

TEST(Settings, AnErrorNamesTheVariableTheValueAndTheRule) {
  struct Case {
    const char* name;
    const char* value;
    const char* rule;
  };
  for (const Case& bad : {
           Case{"MUSTER_FAST", "off", "0, network or 1"},
           Case{"MUSTER_BATCHES", "2", "0 or 1"},
           Case{"MUSTER_HEARTBEAT", "soon", "a positive number of seconds"},
           Case{"MUSTER_FAIL_AFTER", "0", "a positive number of seconds"},
           Case{"MUSTER_WARN_AFTER", "nan", "a positive number of seconds"},
           Case{"MUSTER_MAX_MESSAGE_BYTES", "2147483648", "a number between 1 and 2147483647"},
           Case{"MUSTER_MAX_MEMORY_BYTES", "0", "a number between 1 and 9223372036854775807"},
           Case{"MUSTER_METRICS_PORT", "65536", "a port, 0 to 65535"},
       }) {
    const absl::Status status = Read({{bad.name, bad.value}}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << bad.name;
    EXPECT_EQ(status.message(),
              absl::StrCat(bad.name, " is '", bad.value, "': it must be ", bad.rule));
  }
}

TEST(Settings, ReadsThoseOfOthers) {
  EXPECT_NE(EnvironmentVariable("PATH"), "");
  EXPECT_EQ(WholeEnvironment()["PATH"], EnvironmentVariable("PATH"));
}

}  // namespace
}  // namespace muster
