// Savers of C++ programs: their nodes, saving and restoring, what is kept as time goes by.
#include "muster/train/saving/saver.h"

#include <filesystem>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <sys/wait.h>
#include <unistd.h>

#include "muster/checkpoint/checkpoint_state.h"
#include "muster/checkpoint/file.h"
#include "muster/train/model/variables.h"
#include "muster/train/saving/save_leftovers.h"

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

class SaverTest : public ::testing::Test {
 protected:
  SaverTest() {
    static int count = 0;
    folder_ = absl::StrCat(::testing::TempDir(), "/saver_", getpid(), "_", count++);
    std::filesystem::create_directory(folder_);
  }
  ~SaverTest() override { std::filesystem::remove_all(folder_); }

  TrainVariable Variable(const std::string& name, float value) {
    absl::StatusOr<TrainVariable> variable =
        MakeVariable(scope_, name, Constant(value, Shape({2})));
    EXPECT_TRUE(variable.ok()) << variable.status();
    return *variable;
  }
  static Saveable Saved(const TrainVariable& variable) {
    return VariableSaveable(variable).value();
  }
  std::unique_ptr<Saver> Build(std::vector<Saveable> saveables, SaverOptions options = {}) {
    options.clock = &clock_;
    absl::StatusOr<std::unique_ptr<Saver>> saver =
        Saver::Build(scope_, std::move(saveables), std::move(options));
    EXPECT_TRUE(saver.ok()) << saver.status();
    return *std::move(saver);
  }
  std::unique_ptr<Session> Start(const std::vector<TrainVariable>& variables) {
    std::unique_ptr<Session> session = Session::Create(graph_).value();
    for (const TrainVariable& variable : variables)
      EXPECT_TRUE(session->Run({}, {}, {variable.initializer}).ok());
    return session;
  }
  std::string Path(const std::string& name) const { return absl::StrCat(folder_, "/", name); }
  bool Exists(const std::string& name) const { return FileExists(Path(name)); }

  Graph graph_;
  Scope scope_{graph_};
  VirtualClock clock_;
  std::string folder_;
};

TEST_F(SaverTest, SavesAndRestores) {
  const TrainVariable a = Variable("a", 1), b = Variable("b", 2);
  const std::unique_ptr<Saver> saver = Build({Saved(b), Saved(a)});
  EXPECT_EQ(saver->def().filename_tensor_name, "save/Const:0");
  EXPECT_EQ(saver->def().save_tensor_name, "save/control_dependency:0");
  EXPECT_EQ(saver->def().restore_op_name, "save/restore_all");
  // In the order of the names.
  EXPECT_EQ(graph_.FindNode("save/SaveV2")->input(3).node->name(), "a");
  const std::unique_ptr<Session> session = Start({a, b});
  SaveOptions options;
  options.meta_graph = [] { return std::string("meta"); };
  const auto prefix = saver->Save(*session, Path("m"), 7, options);
  ASSERT_TRUE(prefix.ok()) << prefix.status();
  EXPECT_EQ(**prefix, Path("m-7"));
  EXPECT_EQ(ReadWholeFile(Path("m-7.meta")).value(), "meta");
  EXPECT_EQ(LatestCheckpoint(folder_), Path("m-7"));
  Node* change = scope_.Add("Assign", {a.handle, scope_.Const(Tensor::Vector<float>({5.f, 5.f}))});
  ASSERT_TRUE(session->Run({}, {}, {change}).ok());
  ASSERT_TRUE(saver->Restore(*session, **prefix).ok());
  EXPECT_EQ(session->Run({}, {a.handle}).value()[0].data<float>()[0], 1);
}

TEST_F(SaverTest, KeepsTheNewestAndOneEveryInterval) {
  const TrainVariable a = Variable("a", 1);
  SaverOptions options;
  options.max_to_keep = 2;
  options.keep_checkpoint_every_n_hours = 1;
  const std::unique_ptr<Saver> saver = Build({Saved(a)}, options);
  const std::unique_ptr<Session> session = Start({a});
  for (int step = 1; step <= 6; ++step) {
    clock_.Advance(absl::Minutes(25));
    ASSERT_TRUE(saver->Save(*session, Path("m"), step).ok());
  }
  // Step 3, after 75 minutes, was the first beyond the first hour; the next such one is step 5.
  EXPECT_THAT(saver->last_checkpoints(), ElementsAre(Path("m-5"), Path("m-6")));
  EXPECT_FALSE(Exists("m-1.index") || Exists("m-2.index") || Exists("m-4.index"));
  EXPECT_TRUE(Exists("m-3.index") && Exists("m-5.index") && Exists("m-6.index"));
  ASSERT_TRUE(saver->Save(*session, Path("m"), 5).ok());  // again: it moves to the end
  EXPECT_THAT(saver->last_checkpoints(), ElementsAre(Path("m-6"), Path("m-5")));
  const std::unique_ptr<Saver> other = Build({Saved(a)}, options);
  other->RecoverLastCheckpoints({Path("m-3"), Path("gone"), Path("m-6")});
  EXPECT_THAT(other->last_checkpoints(), ElementsAre(Path("m-3"), Path("m-6")));
}

TEST_F(SaverTest, SaysWhatIsWrong) {
  const TrainVariable a = Variable("a", 1), b = Variable("b", 2);
  Saveable again = Saved(a);
  again.name = again.specs[0].name = "other";
  EXPECT_THAT(Saver::Build(scope_, {Saved(a), again}).status().message(),
              HasSubstr("The same saveable will be restored with two names: other"));
  EXPECT_THAT(Saver::Build(scope_, {Saved(a), Saved(a)}).status().message(),
              HasSubstr("At least two variables have the same name: a"));
  EXPECT_THAT(VariableSaveable(scope_.ConstScalar<float>(1)).status().message(),
              HasSubstr("Variable to save is not a Variable"));
  EXPECT_THAT(Saver::FromDef({}).status().message(), HasSubstr("save_tensor_name"));
  const std::unique_ptr<Saver> saver = Build({Saved(a), Saved(b)});
  const std::unique_ptr<Session> session = Start({a, b});
  EXPECT_THAT(saver->Save(*session, Path("x/y/m")).status().message(),
              HasSubstr("doesn't exist, can't save."));
  EXPECT_THAT(saver->Save(*session, Path("checkpoint")).status().message(),
              HasSubstr("'latest_filename' collides with 'save_path'"));
  EXPECT_THAT(saver->Restore(*session, Path("m")).message(),
              HasSubstr("The passed save_path is not a valid checkpoint"));
  EXPECT_TRUE(absl::IsNotFound(saver->Restore(*session, Path("none/m"))));
  ASSERT_TRUE(Build({Saved(a)})->Save(*session, Path("m")).ok());
  const absl::Status missing = saver->Restore(*session, Path("m"));
  EXPECT_TRUE(absl::IsNotFound(missing));
  EXPECT_THAT(
      std::string(missing.message()),
      testing::AllOf(HasSubstr("Restoring from checkpoint failed. This is most likely due to "
                               "a Variable name or other graph key that is missing"),
                     HasSubstr("Key b not found in checkpoint")));
  Graph unrelated;
  const std::unique_ptr<Session> elsewhere = Session::Create(unrelated).value();
  EXPECT_THAT(saver->Save(*elsewhere, Path("m")).status().message(),
              HasSubstr("is not in the graph of the session"));
}

TEST_F(SaverTest, AnEmptyOneDoesNothing) {
  const std::unique_ptr<Saver> saver = Build({});
  const std::unique_ptr<Session> session = Start({});
  EXPECT_TRUE(saver->empty());
  EXPECT_EQ(saver->Save(*session, Path("m")).value(), std::nullopt);
  EXPECT_TRUE(saver->Restore(*session, Path("m")).ok());
  EXPECT_FALSE(Exists("checkpoint"));
}

TEST_F(SaverTest, SavesFromManyThreads) {
  const TrainVariable a = Variable("a", 1);
  SaverOptions options;
  options.max_to_keep = 3;
  const std::unique_ptr<Saver> saver = Build({Saved(a)}, options);
  const std::unique_ptr<Session> session = Start({a});
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 5; ++k) EXPECT_TRUE(saver->Save(*session, Path("m"), i * 10 + k).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> kept = saver->last_checkpoints();
  ASSERT_EQ(kept.size(), 3u);
  EXPECT_EQ(ReadCheckpointState(folder_)->all_model_checkpoint_paths, kept);
  for (const std::string& prefix : kept) EXPECT_TRUE(CheckpointExists(prefix));
}

// The id that a saver of a process which has ended had.
std::string IdOfTheDead() {
  int ends[2];
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const std::string id = NewSaveId();
    _exit(write(ends[1], id.data(), id.size()) == static_cast<ssize_t>(id.size()) ? 0 : 1);
  }
  char id[32];
  EXPECT_EQ(read(ends[0], id, sizeof(id)), static_cast<ssize_t>(sizeof(id)));
  EXPECT_EQ(waitpid(child, nullptr, 0), child);
  for (const int end : ends) close(end);
  return std::string(id, sizeof(id));
}

TEST_F(SaverTest, TheNextSaveRemovesWhatInterruptedOnesHaveLeft) {
  const TrainVariable a = Variable("a", 1);
  SaverOptions options;
  options.sharded = true;
  const auto saver = Build({Saved(a)}, options);
  const auto session = Start({a});
  const auto leave = [&](const std::string& folder, bool old = false) {
    std::filesystem::create_directory(Path(folder));
    for (const char* file :
         {"part-00000-of-00002.data-00000-of-00001", "part-00001-of-00002.index.tempstate77"}) {
      const std::string name = absl::StrCat(Path(folder), "/", file);
      EXPECT_TRUE(WriteFileAtomically(name, "bytes").ok());
    }
    if (old) {
      const auto hours_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(2);
      for (const auto& file : std::filesystem::directory_iterator(Path(folder)))
        std::filesystem::last_write_time(file.path(), hours_ago);
      std::filesystem::last_write_time(Path(folder), hours_ago);
    }
    return folder;
  };
  const std::string foreign = "0123456789abcdef0123456789abcdef";
  const std::string dead = IdOfTheDead();
  const std::vector<std::string> leftovers = {
      leave(absl::StrCat("m-5_temp_", dead)), leave(absl::StrCat("m_temp_", dead)),
      leave(absl::StrCat("m-6_temp_", NewSaveId())),  // of this process, which saves nothing there
      leave(absl::StrCat("m-7_temp_", foreign), /*old=*/true)};
  const SaveUnderWay living(Path("m-8"));
  std::vector<std::string> others = {
      leave(absl::StrCat("m-8_temp_", NewSaveId())), leave(absl::StrCat("m-8_temp_", dead)),
      leave(absl::StrCat("m-9_temp_", foreign)),     leave(absl::StrCat("other-5_temp_", dead)),
      leave(absl::StrCat("m-5x_temp_", dead)),       leave("m-5_temp_files"),
      leave(absl::StrCat("m-4_temp_", dead))};
  EXPECT_TRUE(WriteFileAtomically(Path(others.back() + "/notes"), "not a part").ok());
  ASSERT_TRUE(saver->Save(*session, Path("m"), 10).ok());
  for (const std::string& folder : leftovers) EXPECT_FALSE(Exists(folder)) << folder;
  for (const std::string& folder : others) EXPECT_TRUE(Exists(folder)) << folder;
  EXPECT_TRUE(Exists("m-10.index"));
}

TEST_F(SaverTest, TheNextSaveRemovesHalfWrittenFilesOfLongAgo) {
  const TrainVariable a = Variable("a", 1);
  const auto saver = Build({Saved(a)}, {});
  const auto session = Start({a});
  const auto leave = [&](const std::string& file, bool old = true) {
    EXPECT_TRUE(WriteFileAtomically(Path(file), "bytes").ok());
    const auto hours_ago = std::filesystem::file_time_type::clock::now() - std::chrono::hours(2);
    if (old) std::filesystem::last_write_time(Path(file), hours_ago);
    return file;
  };
  const std::vector<std::string> leftovers = {leave("m-5.data-00000-of-00001.tempstate77"),
                                              leave("m-5.index.tempstate1234567890123456789"),
                                              leave("m.data-00000-of-00001.tempstate8")};
  const SaveUnderWay living(Path("m-8"));
  const std::vector<std::string> others = {
      leave("m-6.index.tempstate78", /*old=*/false), leave("m-8.index.tempstate79"),
      leave("mine-5.index.tempstate80"), leave("m-5.index.tempstates"), leave("m-5.index")};
  ASSERT_TRUE(saver->Save(*session, Path("m"), 10).ok());
  for (const std::string& file : leftovers) EXPECT_FALSE(Exists(file)) << file;
  for (const std::string& file : others) EXPECT_TRUE(Exists(file)) << file;
}

}  // namespace
}  // namespace muster
