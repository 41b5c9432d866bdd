#include "muster/device/gpu/gpu_timer.h"

#include "muster/device/gpu/gpu.h"

namespace muster {

absl::Status GpuTimer::Begin() {
  const cuda::Driver& driver = gpu_.driver();
  for (cuda::Event* const event : {&begin_, &end_}) {
    if (*event == nullptr)
      RETURN_IF_ERROR(cuda::Check(driver.EventCreate(event, 0), "cuEventCreate"));
  }
  return cuda::Check(driver.EventRecord(begin_, gpu_.stream_handle()), "cuEventRecord");
}

absl::StatusOr<float> GpuTimer::End() {
  const cuda::Driver& driver = gpu_.driver();
  RETURN_IF_ERROR(cuda::Check(driver.EventRecord(end_, gpu_.stream_handle()), "cuEventRecord"));
  RETURN_IF_ERROR(cuda::Check(driver.EventSynchronize(end_), "timed work"));
  float milliseconds = 0;
  RETURN_IF_ERROR(
      cuda::Check(driver.EventElapsedTime(&milliseconds, begin_, end_), "cuEventElapsedTime"));
  return milliseconds;
}

}  // namespace muster
