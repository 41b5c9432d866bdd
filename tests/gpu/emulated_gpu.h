// What the emulated libraries use of the emulated card (emulated_gpu.cc).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace emulated {

// As CUDA numbers its errors.
constexpr int kOk = 0, kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kIllegalAddress = 700, kLaunchFailed = 719;

// Runs when somebody waits for the stream; only then can it touch the card's memory.
int PutOnStream(std::function<int()> work);
// Whether all of it is in one piece of the card's memory that is in use.
bool IsOnCard(const void* at, size_t bytes);
void* CardsStream();
// Of an environment variable; null: it is not set.
const char* TextFrom(const char* variable);
size_t NumberFrom(const char* variable, size_t otherwise);

float FromHalf(uint16_t bits);
uint16_t ToHalf(float value);
float FromBfloat16(uint16_t bits);
uint16_t ToBfloat16(float value);

}  // namespace emulated
