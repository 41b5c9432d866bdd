#include "muster/task/task_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::ElementsAre;

constexpr char kTask[] = "/job:w/replica:0/task:1";

std::vector<std::string> Names(const TaskDevices& devices) {
  std::vector<std::string> names;
  for (const Device* device : devices.list()) names.push_back(device->name());
  return names;
}

// A device of another type, on the memory of the host.
class OtherDevice : public Device {
 public:
  explicit OtherDevice(const std::string& name) : Device({name, "OTHER", 0, 7, ""}) {}
  Allocator& allocator() override { return HostAllocator(); }
  Allocator& host_allocator() override { return HostAllocator(); }
  Scheduler& scheduler() override { return DefaultScheduler(); }
  Stream* stream() override { return nullptr; }
  void Copy(const Tensor& tensor, Device&, CopyDone done) override { std::move(done)(tensor); }
};

TEST(TaskDevicesTest, AreNumberedAndFound) {
  const auto devices = TaskDevices::Create(kTask, {2}, DefaultScheduler());
  ASSERT_TRUE(devices.ok()) << devices.status();
  EXPECT_THAT(Names(**devices), ElementsAre("/job:w/replica:0/task:1/device:CPU:0",
                                            "/job:w/replica:0/task:1/device:CPU:1"));
  Device* const second = (*devices)->list()[1];
  EXPECT_EQ((*devices)->Find(second->name()), second);
  EXPECT_EQ((*devices)->Find("/device:CPU:1"), nullptr);
  EXPECT_EQ((*devices)->FindNumber(*DeviceName::Parse("/job:other/task:9/device:CPU:1")), second);
  EXPECT_EQ((*devices)->FindNumber(*DeviceName::Parse("/device:CPU:2")), nullptr);
  EXPECT_EQ((*devices)->FindNumber(*DeviceName::Parse("/job:w/task:1")), nullptr);
}

TEST(TaskDevicesTest, TheirNumberHasLimits) {
  EXPECT_EQ(TaskDevices::Create(kTask, {0}, DefaultScheduler()).status(),
            InvalidArgument("device_count CPU is 0; a task has between 1 and 1024 CPU devices"));
  EXPECT_FALSE(TaskDevices::Create(kTask, {1025}, DefaultScheduler()).ok());
  EXPECT_TRUE(TaskDevices::Create(kTask, {1024}, DefaultScheduler()).ok());
}

TEST(TaskDevicesTest, SessionsNumberThemPerType) {
  std::vector<std::unique_ptr<Device>> list;
  list.push_back(NewCpuDevice("/job:w/replica:0/task:1/device:CPU:0", DefaultScheduler()));
  list.push_back(std::make_unique<OtherDevice>("/job:w/replica:0/task:1/device:OTHER:0"));
  list.push_back(NewCpuDevice("/job:w/replica:0/task:1/device:CPU:1", DefaultScheduler()));
  const auto devices = TaskDevices::Of(kTask, std::move(list));
  const auto view = TaskDevices::ForSession(devices, "/job:p/replica:0/task:0", {});
  EXPECT_THAT(Names(*view), ElementsAre("/job:p/replica:0/task:0/device:CPU:0",
                                        "/job:p/replica:0/task:0/device:OTHER:0",
                                        "/job:p/replica:0/task:0/device:CPU:1"));
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(view->list()[i]->attributes().incarnation,
              devices->list()[i]->attributes().incarnation);
  }
  // Nothing differs: they are the same.
  EXPECT_EQ(TaskDevices::ForSession(devices, kTask, {}), devices);
}

TEST(TaskDevicesTest, ASessionPaysForItsMemory) {
  const auto devices = *TaskDevices::Create(kTask, {1}, DefaultScheduler());
  const auto account = MakeRef<MemoryAccount>("this session", 1 << 20);
  const auto view = TaskDevices::ForSession(devices, kTask, account);
  EXPECT_THAT(Names(*view), ElementsAre("/job:w/replica:0/task:1/device:CPU:0"));
  const Buffer charged = view->list()[0]->allocator().Allocate(1000);
  EXPECT_GE(account->used_bytes(), 1000);
  const int64_t used = account->used_bytes();
  const Buffer free = devices->list()[0]->allocator().Allocate(1000);
  EXPECT_EQ(account->used_bytes(), used);
}

}  // namespace
}  // namespace muster
