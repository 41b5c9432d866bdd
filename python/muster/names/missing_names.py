"""Public names of TensorFlow 1.15 and 2.21 that Muster does not have, by module; python/tests/test_missing_names.py
keeps it complete."""

NAMES = {
    "": (
        "CXX11_ABI_FLAG CXX_VERSION CriticalSection GradientTape IndexedSlicesSpec LMDBReader "
        "MONOLITHIC_BUILD Module NoneTensorSpec OptionalSpec QUANTIZED_DTYPES RaggedTensor RaggedTensorSpec "
        "SparseTensorSpec TensorArraySpec TensorSpec TypeSpec approx_top_k audio autodiff autograph "
        "batch_scatter_update check_pinned config conv conv2d_backprop_filter_v2 "
        "conv2d_backprop_input_v2 decode_compressed decode_json_example dequantize distribute eig eigvals "
        "enable_tensor_equality enable_v2_tensorshape "
        "executing_eagerly_outside_functions experimental extract_volume_patches fake_quant_with_min_max_args "
        "fake_quant_with_min_max_args_gradient fake_quant_with_min_max_vars "
        "fake_quant_with_min_max_vars_gradient fake_quant_with_min_max_vars_per_channel "
        "fake_quant_with_min_max_vars_per_channel_gradient feature_column fft fft2d fft3d fftnd fingerprint "
        "function get_current_name_scope grad_pass_through ifft ifft2d ifft3d ifftnd init_scope "
        "inside_function irfftnd is_symbolic_tensor keras lite load_library matrix_solve_ls "
        "matrix_square_root mixed_precision mlir no_gradient nondifferentiable_batch_function optimizers "
        "profiler quantization quantize quantize_v2 quantized_concat ragged ragged_fill_empty_rows "
        "ragged_fill_empty_rows_grad random_index_shuffle recompute_grad rfftnd self_adjoint_eig "
        "self_adjoint_eigvals signal sparse_matmul spectral tensor_scatter_nd_max tensor_scatter_nd_min tpu "
        "type_spec_from_value types user_ops vectorized_map version wrap_function xla"),
    "compat": "dimension_at_index dimension_value forward_compatibility_horizon forward_compatible v2",
    "data": (
        "AUTOTUNE DatasetSpec INFINITE_CARDINALITY IteratorSpec NumpyIterator ThreadingOptions "
        "UNKNOWN_CARDINALITY"),
    "data.experimental": (
        "AutoShardPolicy AutotuneAlgorithm AutotuneOptions CsvDataset DatasetInitializer DatasetStructure "
        "ExternalStatePolicy INFINITE_CARDINALITY Optional OptionalStructure RaggedTensorStructure "
        "RandomDataset Reducer SHARD_HINT ServiceOptions SparseTensorStructure SqlDataset Structure "
        "TFRecordWriter TensorArrayStructure TensorStructure UNKNOWN_CARDINALITY assert_cardinality at "
        "bucket_by_sequence_length cardinality choose_from_datasets dense_to_ragged_batch "
        "dense_to_sparse_batch distributed_save enable_debug_mode from_list from_variant get_model_proto "
        "get_next_as_optional get_single_element get_structure group_by_reducer group_by_window "
        "index_table_from_dataset load make_batched_features_dataset make_csv_dataset "
        "make_saveable_from_iterator map_and_batch_with_legacy_function pad_to_cardinality rejection_resample "
        "sample_from_datasets save scan service snapshot table_from_dataset take_while to_variant unique"),
    "debugging": (
        "assert_shapes disable_check_numerics disable_traceback_filtering enable_check_numerics "
        "enable_traceback_filtering experimental get_log_device_placement is_traceback_filtering_enabled "
        "set_log_device_placement"),
    "distributions": "Beta Dirichlet DirichletMultinomial Exponential Gamma Laplace Multinomial StudentT Uniform",
    "dtypes": "experimental",
    "graph_util": "import_graph_def",
    "image": (
        "adjust_jpeg_quality combined_non_max_suppression decode_jxl decode_webp draw_bounding_boxes "
        "extract_glimpse generate_bounding_box_proposals image_gradients non_max_suppression_overlaps "
        "non_max_suppression_padded non_max_suppression_with_scores random_crop random_jpeg_quality "
        "resize_image_with_pad resize_with_pad sample_distorted_bounding_box sobel_edges ssim ssim_multiscale "
        "stateless_random_brightness stateless_random_contrast stateless_random_crop "
        "stateless_random_flip_left_right stateless_random_flip_up_down stateless_random_hue "
        "stateless_random_jpeg_quality stateless_random_saturation stateless_sample_distorted_bounding_box"),
    "io": "RaggedFeature decode_compressed decode_json_example decode_jxl decode_proto decode_webp encode_proto",
    "io.gfile": "get_registered_schemes join",
    "layers": (
        "AveragePooling3D Conv3DTranspose InputSpec MaxPooling3D SeparableConv1D average_pooling3d conv3d "
        "conv3d_transpose experimental max_pooling3d separable_conv1d"),
    "linalg": (
        "LinearOperator LinearOperatorAdjoint LinearOperatorBlockDiag LinearOperatorBlockLowerTriangular "
        "LinearOperatorCirculant LinearOperatorCirculant2D LinearOperatorCirculant3D "
        "LinearOperatorComposition LinearOperatorDiag LinearOperatorFullMatrix LinearOperatorHouseholder "
        "LinearOperatorIdentity LinearOperatorInversion LinearOperatorKronecker LinearOperatorLowRankUpdate "
        "LinearOperatorLowerTriangular LinearOperatorPermutation LinearOperatorScaledIdentity "
        "LinearOperatorToeplitz LinearOperatorTridiag LinearOperatorZeros adjoint banded_triangular_solve eig "
        "eigh eigh_tridiagonal eigvals eigvalsh einsum experimental expm logm lstsq lu lu_matrix_inverse "
        "lu_reconstruct lu_solve matrix_rank normalize pinv sqrtm tridiagonal_matmul tridiagonal_solve"),
    "lookup": "experimental",
    "math": (
        "approx_max_k approx_min_k bessel_i0 bessel_i1 cumulative_logsumexp erfcinv erfinv ndtri nextafter "
        "reciprocal_no_nan sobol_sample special xlog1py"),
    "metrics": "average_precision_at_k sparse_average_precision_at_k",
    "nn": (
        "RNNCellDeviceWrapper RNNCellDropoutWrapper RNNCellResidualWrapper approx_max_k approx_min_k "
        "atrous_conv2d_transpose avg_pool_v2 collapse_repeated compute_average_loss conv1d_transpose "
        "conv3d_backprop_filter conv3d_backprop_filter_v2 conv_transpose ctc_beam_search_decoder "
        "ctc_beam_search_decoder_v2 ctc_loss_v2 ctc_unique_labels depthwise_conv2d_backprop_filter "
        "depthwise_conv2d_backprop_input depthwise_conv2d_native_backprop_filter "
        "depthwise_conv2d_native_backprop_input dilation2d erosion2d experimental fractional_avg_pool "
        "fractional_max_pool gelu isotonic_regression max_pool_v2 quantized_avg_pool quantized_conv2d "
        "quantized_max_pool quantized_relu_x scale_regularization_loss silu static_state_saving_rnn "
        "with_space_to_batch"),
    "random": (
        "Algorithm Generator create_rng_state experimental fold_in get_global_generator set_global_generator "
        "set_seed split stateless_binomial stateless_categorical stateless_gamma stateless_multinomial "
        "stateless_parameterized_truncated_normal stateless_poisson"),
    "saved_model": "Asset DEBUG_DIRECTORY DEBUG_INFO_FILENAME_PB LoadOptions SaveOptions experimental load_v2 save",
    "saved_model.constants": "DEBUG_DIRECTORY DEBUG_INFO_FILENAME_PB",
    "saved_model.signature_def_utils": "MethodNameUpdater",
    "sparse": "bincount cross cross_hashed eye map_values sampled_addmm",
    "strings": (
        "bytes_split ngrams unicode_decode unicode_decode_with_offsets unicode_encode unicode_script "
        "unicode_split unicode_split_with_offsets unicode_transcode unsorted_segment_join"),
    "summary": (
        "all_v2_summary_ops create_file_writer create_noop_writer experimental flush graph initialize "
        "record_if should_record_summaries trace_export trace_off trace_on write"),
    "sysconfig": "CXX11_ABI_FLAG CXX_VERSION MONOLITHIC_BUILD get_build_info",
    "test": (
        "Benchmark StubOutForTesting benchmark_config compute_gradient compute_gradient_error "
        "create_local_cluster disable_with_predicate experimental is_built_with_rocm is_built_with_xla "
        "is_cpu_target_available with_eager_op_as_function"),
    "train": (
        "Checkpoint CheckpointManager CheckpointOptions CheckpointView TrackableView VocabInfo "
        "do_quantize_training_on_graphdef experimental sdca_fprint sdca_optimizer sdca_shrink_l1"),
}
