#include "muster/tensor/variant_codec.h"

namespace muster {
namespace {

std::vector<VariantCodec>& Codecs() {
  static auto* codecs = new std::vector<VariantCodec>;
  return *codecs;
}

}  // namespace

bool RegisterVariantCodec(VariantCodec codec) {
  Codecs().push_back(std::move(codec));
  return true;
}

const std::vector<VariantCodec>& VariantCodecs() {
  return Codecs();
}

}  // namespace muster
