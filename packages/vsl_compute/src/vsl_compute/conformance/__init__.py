"""The suite that every backend must pass, shipped so that anyone can run it on their own machine.

`vsl conformance --backend NAME`, or

    pytest -p vsl_compute.conformance.plugin --pyargs vsl_compute.conformance --backend NAME
"""
