// RunMetadata from what the workers of a step reported.
#pragma once

#include <string>
#include <vector>

namespace muster {

// A serialized RunMetadata of serialized StepStats, of which those of one device become one, and
// serialized GraphDefs. What cannot be read is left out.
std::string MergeRunMetadata(const std::vector<std::string>& step_stats,
                             const std::vector<std::string>& partition_graphs);

}  // namespace muster
