#include "muster/transport/messages/channel.h"

namespace muster {

absl::Status CallFailed(const absl::Status& status, absl::string_view who,
                        absl::string_view method) {
  // TensorFlow's own words, which callers may look for.
  return Suffixed(status, absl::StrCat("\nAdditional GRPC error information from remote target ",
                                       who, " while calling ", method));
}

}  // namespace muster
