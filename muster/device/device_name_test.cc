#include "muster/device/device_name.h"

#include <gtest/gtest.h>

namespace muster {
namespace {

TEST(DeviceNameTest, ReadsWholePartialAndOldForms) {
  EXPECT_EQ(DeviceName::Parse("/job:ps/replica:0/task:1/device:CPU:0")->ToString(),
            "/job:ps/replica:0/task:1/device:CPU:0");
  EXPECT_EQ(DeviceName::Parse("/cpu:0")->ToString(), "/device:CPU:0");
  EXPECT_EQ(DeviceName::Parse("/job:worker/task:3")->ToString(), "/job:worker/task:3");
  EXPECT_EQ(DeviceName::Parse("/device:gpu:*")->ToString(), "/device:GPU:*");
  EXPECT_EQ(DeviceName::Parse("")->ToString(), "");
  EXPECT_EQ(DeviceName::Parse("//cpu:0/")->ToString(), "/device:CPU:0");
}

TEST(DeviceNameTest, RejectsOtherText) {
  for (const char* bad :
       {"/job:", "nonsense", "/task:x", "/task:-1", "/device:", "/cpu:0:1", "/job:a/b"}) {
    EXPECT_FALSE(DeviceName::Parse(bad).ok()) << bad;
  }
}

TEST(DeviceNameTest, InnerPartsWin) {
  const DeviceName outer = *DeviceName::Parse("/job:ps/task:0/cpu:0"),
                   inner = *DeviceName::Parse("/task:1");
  EXPECT_EQ(outer.Override(inner).ToString(), "/job:ps/task:1/device:CPU:0");
  EXPECT_TRUE(inner.Matches(*DeviceName::Parse("/job:a/replica:0/task:1/device:CPU:0")));
  EXPECT_FALSE(inner.Matches(*DeviceName::Parse("/job:a/replica:0/task:2/device:CPU:0")));
}

TEST(TaskOfTest, IsThePartBeforeTheDevice) {
  EXPECT_EQ(TaskOf("/job:a/replica:0/task:12/device:CPU:0"), "/job:a/replica:0/task:12");
  EXPECT_EQ(TaskOf("/job:a/replica:0/task:1"), "/job:a/replica:0/task:1");
  EXPECT_EQ(TaskOf("/device:CPU:0"), "");
  EXPECT_EQ(TaskOf("/job:a/task:/device:CPU:0"), "");
  EXPECT_EQ(TaskOf(""), "");
}

}  // namespace
}  // namespace muster
