#include "muster/checkpoint/checkpoint_state.h"

#include <gtest/gtest.h>

#include "muster/checkpoint/checkpoint_test.h"

namespace muster {
namespace {

using Paths = std::vector<std::string>;

TEST(CheckpointState, IsPrintedAsTensorFlowPrintsIt) {
  CheckpointState state;
  state.model_checkpoint_path = "ckpt-2";
  state.all_model_checkpoint_paths = {"ckpt-1", "ckpt-2"};
  EXPECT_EQ(CheckpointStateToText(state),
            "model_checkpoint_path: \"ckpt-2\"\n"
            "all_model_checkpoint_paths: \"ckpt-1\"\n"
            "all_model_checkpoint_paths: \"ckpt-2\"\n");
  const absl::StatusOr<std::string> golden =
      ReadWholeFile(std::string(MUSTER_GOLDEN_FILES) + "/retention_manager/checkpoint");
  ASSERT_TRUE(golden.ok());
  const absl::StatusOr<CheckpointState> with_times = CheckpointStateFromText(*golden);
  ASSERT_TRUE(with_times.ok()) << with_times.status();
  EXPECT_EQ(with_times->all_model_checkpoint_timestamps.size(), 2u);
  EXPECT_EQ(CheckpointStateToText(*with_times), *golden);
}

TEST(CheckpointState, TakesEveryFormOfText) {
  const absl::StatusOr<CheckpointState> state = CheckpointStateFromText(
      "# a comment\n"
      "all_model_checkpoint_paths: 'a\\'b'  # another\n"
      "last_preserved_timestamp: 1.5e3\n"
      "all_model_checkpoint_paths: [\"c\\303\\251\", 'd' \"e\"]\n"
      "model_checkpoint_path: \"a\\tb\"");
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_EQ(state->model_checkpoint_path, "a\tb");
  EXPECT_EQ(state->all_model_checkpoint_paths, (Paths{"a'b", "c\xc3\xa9", "de"}));
  EXPECT_EQ(state->last_preserved_timestamp, 1500);
  for (const char* bad :
       {"model_checkpoint_path", "model_checkpoint_path: \"x", "nonsense: 1", "\x01"})
    EXPECT_FALSE(CheckpointStateFromText(bad).ok()) << bad;
}

TEST(CheckpointState, KeepsPathsAsTensorFlowDoes) {
  const auto paths = [](const std::string& directory, const std::string& newest, Paths all = {},
                        bool relative = false) {
    return MakeCheckpointState(directory, newest, std::move(all), {}, {}, relative)
        ->all_model_checkpoint_paths;
  };
  EXPECT_EQ(paths("/d", "/d/m-2", {"/d/m-1"}), (Paths{"/d/m-1", "/d/m-2"}));
  EXPECT_EQ(paths("/d", "/d/m-2", {"/d/m-1", "/d/m-2"}), (Paths{"/d/m-1", "/d/m-2"}));
  EXPECT_EQ(paths("/d", "/d/m-2", {"/d/m-1"}, true), (Paths{"m-1", "m-2"}));
  EXPECT_EQ(paths("d", "d/m-2", {"d/m-1"}), (Paths{"m-1", "m-2"}));
  EXPECT_EQ(paths("d/", "d/m-2"), (Paths{"m-2"}));
  EXPECT_EQ(paths("d/e", "d/m-2"), (Paths{"../m-2"}));
  EXPECT_EQ(paths(".", "./m-2"), (Paths{"m-2"}));
  EXPECT_EQ(paths("", "m-2"), (Paths{"m-2"}));
  EXPECT_EQ(paths("d", "/abs/m-2"), (Paths{"/abs/m-2"}));
  EXPECT_FALSE(MakeCheckpointState("/d", "m", {}, {1.0, 2.0}).ok());
}

TEST(CheckpointState, FindsTheLatestWhereTheFolderLies) {
  TestFolder folder;
  EXPECT_EQ(LatestCheckpoint(folder.path()), "");
  EXPECT_EQ(ReadCheckpointState(folder.path()).status().code(), absl::StatusCode::kNotFound);
  WriteQuickly(folder / "checkpoint", "model_checkpoint_path: 'm-1'\n");
  EXPECT_EQ(LatestCheckpoint(folder.path()), "") << "its files are missing";
  WriteQuickly(folder / "m-1.index", "");
  EXPECT_EQ(LatestCheckpoint(folder.path()), folder / "m-1");
  WriteQuickly(folder / "other", "model_checkpoint_path: 'v1'\n");
  WriteQuickly(folder / "v1-00000-of-00002", "");
  EXPECT_EQ(LatestCheckpoint(folder.path(), "other"), folder / "v1");
  WriteQuickly(folder / "checkpoint", "");
  EXPECT_EQ(ReadCheckpointState(folder.path()).status().code(), absl::StatusCode::kInvalidArgument);
  CheckpointState state;
  state.model_checkpoint_path = folder / "checkpoint";
  EXPECT_FALSE(WriteCheckpointState(folder.path(), state).ok()) << "it would replace itself";
}

TEST(CheckpointState, RemovesWhatBelongsToACheckpointOnly) {
  TestFolder folder;
  for (const char* name :
       {"m-1.index", "m-1.data-00000-of-00002", "m-1.data-00001-of-00002", "m-1.meta", "m-10.index",
        "m-1.data-00000-of-00002.other", "v[1]-00000-of-00001"}) {
    WriteQuickly(folder / name, "");
  }
  ASSERT_TRUE(RemoveCheckpoint(folder / "m-1").ok());
  EXPECT_FALSE(CheckpointExists(folder / "m-1"));
  EXPECT_TRUE(CheckpointExists(folder / "m-10"));
  EXPECT_TRUE(CheckpointExists(folder / "v[1]"));
  EXPECT_FALSE(FileExists(folder / "m-1.meta"));
  EXPECT_FALSE(FileExists(folder / "m-1.data-00001-of-00002"));
  EXPECT_TRUE(FileExists(folder / "m-1.data-00000-of-00002.other"));
  ASSERT_TRUE(RemoveCheckpoint(folder / "v[1]").ok());
  EXPECT_FALSE(CheckpointExists(folder / "v[1]"));
  EXPECT_TRUE(RemoveCheckpoint(folder / "none").ok());
}

TEST(CheckpointState, NamesTheGraphOfAShardedCheckpointOnce) {
  EXPECT_EQ(MetaGraphFileName("m-5"), "m-5.meta");
  EXPECT_EQ(MetaGraphFileName("m-5-?????"
                              "-of-00004",
                              "graph"),
            "m-5.graph");
  EXPECT_EQ(MetaGraphFileName("m-5-00001-of-00004"), "m-5.meta");
  EXPECT_EQ(MetaGraphFileName("m-of-4"), "m-of-4.meta");
}

}  // namespace
}  // namespace muster
